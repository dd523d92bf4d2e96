"""A generator's claim loop over the in-memory wire 1, with an engine that has no model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np

from rollcast.config.tasks import Tasks
from rollcast.generator.claims import ClaimLoop
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.grading import GradingThreads
from rollcast.generator.slots import Slots
from rollcast.rollouts.base import Delivery, GeneratorQueue
from rollcast.rollouts.records import (
    LengthBudget,
    PromptTask,
    Purpose,
    Sampling,
)
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.metric import Metric
from rollcast.wire.version import PolicyVersion
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue

V1, V2 = PolicyVersion(1, 1), PolicyVersion(1, 2)


SLOTS = Slots(total=8, train_rollouts=2, eval_rollouts=1, max_eval_share=0.5)


def make_task(
    sequence: int, purpose: Purpose = Purpose.TRAIN, *, first_token: int = 5
) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=purpose,
        dataset="test",
        prompt_id=str(sequence),
        prompt_token_ids=np.asarray([first_token, 6, 7], dtype=np.int32),
        num_rollouts=2 if purpose is Purpose.TRAIN else 1,
        sampling=Sampling(),
        length=LengthBudget(max_tokens=20),
        verifier="arithmetic",
        reference='"1"',
    )


@dataclasses.dataclass
class Run:
    """One generator and the trainer's end of its queue."""

    engine: ScriptedEngine
    claims: ClaimLoop
    trainer: MemoryTrainerQueue
    broker: MemoryBroker
    exporter: Exporter

    def count(self, metric: Metric, **labels: str) -> float:
        return (
            self.exporter.registry.get_sample_value(metric.name, {"run": "test", **labels}) or 0.0
        )

    def claimed(self, purpose: Purpose) -> int:
        return sum(claim.purpose is purpose for claim in self.trainer.outstanding().claims.values())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def advance_until_published(self, count: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        async with asyncio.timeout(10):
            while len(deliveries) < count:
                await self.engine.advance(1)
                deliveries += self.trainer.read(100, 0.0)
        return deliveries


@asynccontextmanager
async def generator(
    engine: ScriptedEngine,
    broker: MemoryBroker | None = None,
    slots: Slots = SLOTS,
    owner: str = "g-1",
    open_queue: Callable[[str], GeneratorQueue] | None = None,
    grader: GradingThreads | None = None,
    reaches_trainer: Callable[[], bool] = lambda: True,
    episodes: EpisodeParts | None = None,
    sessions: Sessions | None = None,
) -> AsyncIterator[Run]:
    broker = broker or MemoryBroker()
    exporter = Exporter("test")
    grader = grader or GradingThreads(engine.decode, Tasks(), exporter)
    claims = ClaimLoop(
        engine=engine,  # type: ignore[arg-type]
        grader=grader,
        open_queue=open_queue or (lambda name: MemoryGeneratorQueue(broker, name)),
        first_owner=owner,
        slots=slots,
        renew_seconds=0.05,
        fence_patience_seconds=5.0,
        reaches_trainer=reaches_trainer,
        exporter=exporter,
        episodes=episodes,
        sessions=sessions,
    )
    running = asyncio.create_task(claims.run())
    try:
        yield Run(engine, claims, MemoryTrainerQueue(broker), broker, exporter)
    finally:
        claims.stop_claiming()
        await running
        await claims.close()
        await grader.close()
