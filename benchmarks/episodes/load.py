"""A generator's claim loop under episodes without end, in worlds inside its own process."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.tasks import Tasks
from rollcast.environments.base import ToolResult
from rollcast.generator.claims import ClaimLoop
from rollcast.generator.grading import GradingThreads
from rollcast.generator.slots import Slots
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import LengthBudget
from rollcast.telemetry import episode_metrics, generator_metrics
from rollcast.telemetry.exporter import Exporter
from testkit.generator.episode_tasks import episode_parts, episode_task
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue

SLOTS = 8
ROLLOUTS = 4
MIN_CALL_SECONDS = 1.0
MAX_CALL_SECONDS = 60.0
MAX_TURNS = 8
STOP_TOKENS = (5, 17, 23)
"""Besides the model's own end of text: turns of about a second in an engine with 8 slots."""
DISPATCHED_AT_ONCE = 100


def engine_config(folder: Path) -> RunConfig:
    return parse_run_config(
        {
            "run": "benchmark",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 2048},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 128,
                "max_completion_tokens": 1920,
                "rollouts_per_prompt": ROLLOUTS,
            },
            "tasks": {"evaluation": {"rollouts_per_prompt": ROLLOUTS}},
            "generator": {"slots": SLOTS, "block_size": 32},
        },
        source="benchmark",
    )


class Load:
    """`async with`: episodes are claimed, played and published until the end of the block."""

    def __init__(self, engine: Engine, scale: float, *, sleeps: bool) -> None:
        self._engine = engine
        self._scale = scale
        self._sleeps = sleeps
        self._draw = random.Random(1)
        self._exporter = Exporter("benchmark")
        self._broker = MemoryBroker()
        self._trainer = MemoryTrainerQueue(self._broker)
        self._next_task = 0
        self.num_finished = 0

    async def __aenter__(self) -> Load:
        self._grader = GradingThreads(self._engine.decode, Tasks(), self._exporter)
        parts = episode_parts(
            ScriptedWorlds(
                lambda: ScriptedWorld(
                    lambda number: ToolResult("a door"), seconds=self._call_seconds
                )
            ),
            lambda tokens: 1,
            stop_token_ids=STOP_TOKENS,
            slots=SLOTS,
            call_seconds=2 * MAX_CALL_SECONDS,
            exporter=self._exporter,
        )
        parts.max_sequence_tokens = 2048
        self._claims = ClaimLoop(
            engine=self._engine,
            grader=self._grader,
            open_queue=lambda owner: MemoryGeneratorQueue(self._broker, owner),
            first_owner="benchmark",
            slots=Slots(
                total=SLOTS,
                train_rollouts=ROLLOUTS,
                eval_rollouts=ROLLOUTS,
                max_eval_share=0.5,
                episode_kv_tokens=self._engine.full_rollouts * 2048,
            ),
            renew_seconds=1.0,
            fence_patience_seconds=60.0,
            reaches_trainer=lambda: True,
            exporter=self._exporter,
            episodes=parts,
        )
        self._dispatch()
        self._running = asyncio.create_task(self._claims.run())
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._claims.stop_claiming()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._running, 10.0)
        await self._claims.drain(0.0, 10.0)
        await self._claims.close()
        await self._grader.close()

    @property
    def num_in_flight(self) -> int:
        return round(self._value(episode_metrics.EPISODES_IN_FLIGHT.name, environment="world"))

    def kv_tokens(self, state: str) -> int:
        return round(self._value(generator_metrics.EPISODE_KV_TOKENS.name, state=state))

    def take_finished(self) -> None:
        """Read published groups as a trainer does, and dispatch as many tasks."""
        deliveries = self._trainer.read(1_000, 0.0)
        self.num_finished += ROLLOUTS * len(deliveries)
        self._trainer.remove([delivery.stream_id for delivery in deliveries])
        self._dispatch()

    def _dispatch(self) -> None:
        while len(self._trainer.outstanding().waiting) < DISPATCHED_AT_ONCE:
            self._next_task += 1
            budget = LengthBudget(max_tokens=1920)
            self._trainer.dispatch(
                [episode_task(self._next_task, ROLLOUTS, budget, max_turns=MAX_TURNS)]
            )

    def _call_seconds(self) -> float:
        if not self._sleeps:
            return 0.0
        drawn = self._draw.uniform(math.log(MIN_CALL_SECONDS), math.log(MAX_CALL_SECONDS))
        return self._scale * math.exp(drawn)

    def _value(self, name: str, **labels: str) -> float:
        return self._exporter.registry.get_sample_value(name, {"run": "benchmark", **labels}) or 0.0
