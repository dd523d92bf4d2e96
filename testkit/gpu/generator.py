"""A generator's service against bare vLLM with the same requests, and rollouts in 8 bits: tokens a
second by the number of slots, and how far log-probs are from float32.

The service claims tasks, samples, grades and publishes groups, over a queue in memory and without
updates (`publish` and `step-*` have those). Nearly every answer has all tokens of its budget, so
that the engines do the same work. Log-probs are compared with plain Transformers in float32 on the
CPU; random weights show what 8 bits change, not how much a trained model minds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rollcast.config.run import RunConfig
from rollcast.config.tasks import Tasks
from rollcast.generator.claims import ClaimLoop
from rollcast.generator.grading import GradingThreads
from rollcast.generator.slots import Slots
from rollcast.generator.vllm.engine import SKELETON, Engine
from rollcast.generator.vllm.engine_start import engine_arguments, set_environment
from rollcast.rollouts.records import LengthBudget, PromptTask, RolloutGroup
from rollcast.telemetry.exporter import Exporter
from testkit.generator.bare_engine import bare_tokens_per_second
from testkit.gpu import card, models
from testkit.gpu.parts import report
from testkit.gpu.speculation import make_task, replay_figures, run_config, write_peaked_model
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue

BARE = "bare vLLM"
SERVICE = "service"
ENGINES: dict[str, dict[str, str]] = {
    BARE: {},
    SERVICE: {},
    "8-bit weights": {"quantization": "fp8_per_channel"},
    "8-bit weights and KV cache": {"quantization": "fp8_per_channel", "kv_cache_dtype": "fp8"},
}
"""Settings of generator.engine."""
SLOTS = (64, 256)
SMALL_SLOTS = (16, 32)
ROLLOUTS = 16
MIN_RATIO = 0.85
"""The service's tokens a second over those of bare vLLM, at each number of slots; the same bound as
in `benchmarks.pipeline`."""


Workload = tuple[int, list[PromptTask]]
"""Slots, and the tasks that fill them."""
Sampled = tuple[dict[int, float], list[RolloutGroup]]


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """A row for each engine; ratios to bare vLLM by slots; targets."""
    shape = models.SMALL if is_small else "0.6b"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as path:
        folder = Path(path)
        last_token = models.qwen3(shape).vocab_size - 1
        write_peaked_model(
            folder, shape, end_stride=last_token, is_tied=False, dtype=torch.bfloat16
        )
        for engine in ENGINES:
            row = card.or_why_not(partial(engine_row, folder, engine, is_small=is_small))
            rows.append({"engine": engine, **row})
            report({"rows": rows})
    return {"shape": shape, "rows": rows, "targets": targets(rows, is_small=is_small)}


def targets(rows: list[dict[str, Any]], *, is_small: bool) -> dict[str, bool]:
    """Adds each row's ratio to bare vLLM by slots. Tiny engines are no measure of speed."""
    (bare,) = [row.get("tokens_per_second", {}) for row in rows if row["engine"] == BARE]
    for row in rows:
        rates = row.get("tokens_per_second", {})
        row["over_bare_vllm"] = {
            slots: round(rates[slots] / bare[slots], 3) for slots in bare if slots in rates
        }
    ran = {"every engine ran": not any("failed" in row for row in rows)}
    if is_small:
        return ran
    ratios = [row["over_bare_vllm"] for row in rows if row["engine"] == SERVICE]
    is_near = all(by_slots and min(by_slots.values()) >= MIN_RATIO for by_slots in ratios)
    return ran | {f"the service at least {MIN_RATIO} of bare vLLM": is_near}


def engine_row(folder: Path, engine: str, *, is_small: bool) -> dict[str, Any]:
    """Tokens a second by slots; for the service also the errors of log-probs."""
    few, many = SMALL_SLOTS if is_small else SLOTS
    budget = 24 if is_small else 512
    settings = ENGINES[engine]
    config = run_config(folder, None, dtype="bfloat16", slots=many, budget=budget, **settings)
    model_config = models.qwen3(models.SMALL if is_small else "0.6b")
    tasks = [
        replace(make_task(ROLLOUTS, model_config, seed=seed), length=LengthBudget(budget))
        for seed in range(1, 1 + 2 * many // ROLLOUTS)
    ]
    # Each slot is filled twice. The first workload warms up, and its rate is replaced by that of
    # the second.
    workloads = [(slots, tasks[: 2 * slots // ROLLOUTS]) for slots in (few, few, many)]
    set_environment(config.generator)
    sample = sample_bare if engine == BARE else sample_service
    rates, groups = asyncio.run(sample(config, workloads))
    row = {"tokens_per_second": {str(slots): round(rate, 1) for slots, rate in rates.items()}}
    if not groups:
        return row
    task = tasks[groups[0].sequence - 1]
    # Eight rollouts: enough tokens for a mean
    return row | replay_figures(folder, groups[0].rollouts[:8], task, {SKELETON: {}})


async def sample_bare(config: RunConfig, workloads: list[Workload]) -> Sampled:
    """vLLM with the arguments of the service's engine, and no code of the generator in it."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = engine_arguments(config, "bare") | {"load_format": "auto"}
    del arguments["worker_extension_cls"]
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    try:
        rates = {
            slots: await bare_tokens_per_second(llm, tasks, slots) for slots, tasks in workloads
        }
    finally:
        llm.shutdown(timeout=2.0)
    return rates, []


async def sample_service(config: RunConfig, workloads: list[Workload]) -> Sampled:
    """Rates, and the groups of the last workload."""
    engine = await Engine.start(config, "proof", own_weights=True)
    rates: dict[int, float] = {}
    groups: list[RolloutGroup] = []
    try:
        for slots, tasks in workloads:
            groups, seconds = await serve(engine, tasks, slots)
            rates[slots] = sum(group.num_tokens for group in groups) / seconds
    finally:
        engine.shutdown()
    return rates, groups


async def serve(
    engine: Engine, tasks: list[PromptTask], slots: int
) -> tuple[list[RolloutGroup], float]:
    """The groups of all tasks, as a trainer reads them, and the seconds until the last was read."""
    broker = MemoryBroker()
    exporter = Exporter("proof")
    trainer = MemoryTrainerQueue(broker)
    claims = ClaimLoop(
        engine=engine,
        grader=GradingThreads(engine.decode, Tasks(), exporter),
        open_queue=lambda owner: MemoryGeneratorQueue(broker, owner),
        first_owner="proof",
        slots=Slots(slots, ROLLOUTS, ROLLOUTS, 0.5),
        renew_seconds=2.0,
        fence_patience_seconds=10.0,
        reaches_trainer=lambda: True,
        exporter=exporter,
    )
    started = time.perf_counter()
    trainer.dispatch(tasks)
    claiming = asyncio.create_task(claims.run())
    groups: list[RolloutGroup] = []
    # A hung engine ends the part.
    async with asyncio.timeout(100.0):
        while len(groups) < len(tasks) and not claiming.done():
            for delivery in await asyncio.to_thread(trainer.read, len(tasks), 0.05):
                groups.append(delivery.group)
                trainer.remove([delivery.stream_id])
    seconds = time.perf_counter() - started
    claims.stop_claiming()
    # Raises what ended it
    await claiming
    await claims.close()
    return groups, seconds
