"""Tokens per second and weight pauses of one generator on CPU, against bare vLLM on the same
prompts.

    python -m lab.generator [--cpu 0] [--groups 24] [--rounds 3]

A random Qwen3 of demo size (0.8 M parameters, float32), 16 rollouts per prompt, 64 slots, at most
192 tokens each. Rounds of bare vLLM, the service without updates, and the service with an update
every half second are interleaved; the medians go to lab/results/generator.json, with the pause and
the time that copying the parameters takes: through vLLM's loader, as under the pause (load), and as
bare memory copies (copy).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.tasks import Tasks
from rollcast.rollouts.records import LengthBudget, PromptTask, Purpose, Sampling
from rollcast.wire.version import PolicyVersion
from testkit.generator.bare_engine import bare_tokens_per_second
from testkit.generator.trainer_end import copy_weights
from testkit.record import LAB_RESULTS, write_result

ROLLOUTS_PER_PROMPT = 16
MAX_TOKENS = 192
UPDATE_SECONDS = 0.5


def make_model(folder: Path) -> None:
    from testkit.tiny_model import make_tiny_model

    make_tiny_model(folder, hidden=128, layers=4)


def make_config(folder: Path, cpu: int | None) -> RunConfig:
    return parse_run_config(
        {
            "run": "benchmark",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 512},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 256,
            },
            "generator": {"slots": 64, "block_size": 32, "cpu": cpu},
            "weights": {"coalesce_seconds": 0.1},
            "rpc": {"port": 0},
        },
        source="benchmark",
    )


def make_tasks(first: int, count: int) -> list[PromptTask]:
    source = random.Random(first)
    return [
        PromptTask(
            sequence=sequence,
            incarnation=1,
            purpose=Purpose.TRAIN,
            dataset="benchmark",
            prompt_id=str(sequence),
            prompt_token_ids=np.asarray(
                [source.randrange(3, 50) for _ in range(24)], dtype=np.int32
            ),
            num_rollouts=ROLLOUTS_PER_PROMPT,
            sampling=Sampling(),
            length=LengthBudget(MAX_TOKENS),
            verifier="arithmetic",
            reference='"1"',
        )
        for sequence in range(first, first + count)
    ]


class Service:
    """The generator's parts in this process, on the in-memory wire 1 and the real wire 2."""

    def __init__(self, config: RunConfig, engine: Any, weights: dict[str, Any]) -> None:
        import torch

        from rollcast.generator.claims import ClaimLoop
        from rollcast.generator.grading import GradingThreads
        from rollcast.generator.slots import Slots
        from rollcast.generator.weights import GeneratorWeights
        from rollcast.telemetry.exporter import Exporter
        from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
        from rollcast.weights.receiver.member import WeightMember
        from rollcast.weights.sender.publisher import Publisher
        from rollcast.weights.sender.staging import StagingSlots
        from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue

        self.weights = weights
        self.pauses: list[float] = []
        self.loads: list[float] = []
        broker = MemoryBroker()
        exporter = Exporter(config.run)
        self.trainer = MemoryTrainerQueue(broker)
        specs = [TensorSpec(name, "float32", tuple(value.shape)) for name, value in weights.items()]
        self.slots = StagingSlots(plan_buckets(specs, config.weights.bucket_bytes))
        self.publisher = Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=1,
            history=(),
            lm_head=config.recipe.lm_head,
            specs=specs,
            device=torch.device("cpu"),
            exporter=exporter,
            on_removed=lambda name, reason: None,
            slots=self.slots,
        )
        port = self.publisher.start()
        self.claims = ClaimLoop(
            engine=engine,
            grader=GradingThreads(engine.decode, Tasks(), exporter),
            open_queue=lambda owner: MemoryGeneratorQueue(broker, owner),
            first_owner="benchmark",
            slots=Slots(config.generator.most_slots, ROLLOUTS_PER_PROMPT, ROLLOUTS_PER_PROMPT, 0.5),
            renew_seconds=2.0,
            fence_patience_seconds=10.0,
            reaches_trainer=lambda: self.member.joined,
            exporter=exporter,
        )
        adaptor = GeneratorWeights("benchmark", engine, self.claims, exporter)
        apply = adaptor.apply

        async def timed(version: PolicyVersion) -> float:
            self.pauses.append(await apply(version))
            self.loads.append(engine.load_seconds)
            return self.pauses[-1]

        adaptor.apply = timed  # type: ignore[method-assign]
        self.member = WeightMember(
            engine=adaptor,
            name="benchmark",
            num_workers=1,
            slots=config.generator.most_slots,
            lm_head=config.recipe.lm_head,
            rpc=config.rpc.model_copy(update={"port": port}),
            weights=config.weights,
            exporter=exporter,
        )
        self.step = 0

    async def publish(self) -> None:
        """One more version, and its acknowledgement."""
        self.step += 1
        slot, version = self.publisher.stage(), PolicyVersion(1, self.step)
        await asyncio.to_thread(
            self.slots.fill, slot, version, 5.0, partial(copy_weights, self.weights)
        )
        self.publisher.publish(slot, version)
        assert await asyncio.to_thread(self.publisher.wait_acknowledged, self.step, 30.0)

    async def run(self, tasks: list[PromptTask], *, updates: bool) -> float:
        """Tokens per second until all tasks are finished."""

        async def keep_publishing() -> None:
            while True:
                await asyncio.sleep(UPDATE_SECONDS)
                await self.publish()

        publishing = asyncio.create_task(keep_publishing()) if updates else None
        started = time.perf_counter()
        self.trainer.dispatch(tasks)
        num_tokens, num_groups = 0, 0
        while num_groups < len(tasks):
            for delivery in await asyncio.to_thread(self.trainer.read, 100, 0.05):
                num_groups += 1
                num_tokens += delivery.group.num_tokens
                self.trainer.remove([delivery.stream_id])
        seconds = time.perf_counter() - started
        if publishing is not None:
            publishing.cancel()
        return num_tokens / seconds


def copy_seconds(weights: dict[str, Any]) -> float:
    """Median time of copying every parameter once."""
    targets = {name: value.clone() for name, value in weights.items()}
    times = []
    for _ in range(20):
        started = time.perf_counter()
        for name, value in weights.items():
            targets[name].copy_(value)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


async def measure(config: RunConfig, groups: int, rounds: int) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    from rollcast.generator.vllm.engine import Engine
    from rollcast.generator.vllm.engine_start import set_environment

    set_environment(config.generator)
    model = AutoModelForCausalLM.from_pretrained(config.model.path)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    engine = await Engine.start(config, "benchmark")
    service = Service(config, engine, weights)
    member = asyncio.create_task(service.member.run())
    await service.publish()
    while engine.version is None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    claiming = asyncio.create_task(service.claims.run())
    await service.run(make_tasks(1_000_000, 4), updates=False)
    service.pauses.clear()
    service.loads.clear()
    rates: dict[str, list[float]] = {"bare_vllm": [], "service": [], "service_with_updates": []}
    for number in range(rounds):
        first = 1000 * number
        rates["bare_vllm"].append(
            await bare_tokens_per_second(
                engine._llm, make_tasks(first, groups), config.generator.most_slots
            )
        )
        rates["service"].append(await service.run(make_tasks(first + 300, groups), updates=False))
        rates["service_with_updates"].append(
            await service.run(make_tasks(first + 600, groups), updates=True)
        )
    service.claims.stop_claiming()
    await claiming
    member.cancel()
    service.publisher.stop(1.0)
    engine.shutdown()
    return {
        "tokens_per_second": {
            name: round(statistics.median(values)) for name, values in rates.items()
        },
        "service_over_bare": round(
            statistics.median(rates["service"]) / statistics.median(rates["bare_vllm"]), 3
        ),
        "pause_ms": {
            "median": round(1e3 * statistics.median(service.pauses), 2),
            "largest": round(1e3 * max(service.pauses), 2),
            "updates": len(service.pauses),
        },
        "load_ms": {
            "median": round(1e3 * statistics.median(service.loads), 2),
            "pause_over_load": round(
                statistics.median(service.pauses) / statistics.median(service.loads), 2
            ),
        },
        "copy_ms": round(1e3 * copy_seconds(weights), 2),
        "parameters": sum(value.numel() for value in weights.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", type=int, default=None, help="core of the engine")
    parser.add_argument("--groups", type=int, default=24, help="prompts of one round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder) / "model")
        config = make_config(Path(folder), arguments.cpu)
        figures = asyncio.run(measure(config, arguments.groups, arguments.rounds))
        print(json.dumps(figures, indent=1))
        print(write_result("generator", figures, LAB_RESULTS))


if __name__ == "__main__":
    main()
