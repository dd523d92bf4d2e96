"""`python -m benchmarks.episodes`: 8 slots, and episodes whose tool calls sleep 1 to 60 seconds,
log-uniform.

A real engine with a tiny model samples them through a generator's claim loop: first with calls that
answer immediately, then with calls that sleep, then immediately again. Compared are sampled tokens
per second once as many episodes are in flight as the loop wants. `--scale 0.1` makes calls and
measurements ten times shorter. Writes results/episodes.json at scale 1; exit status 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.episodes.load import MAX_CALL_SECONDS, MIN_CALL_SECONDS, SLOTS, Load, engine_config
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_start import set_environment
from testkit.record import write_result
from testkit.tiny_model import make_tiny_model

WARM_UP_SECONDS = 90.0
"""Until as many episodes are in flight as stay so: the longest call and a half."""
IMMEDIATE_SHARE = 0.5
"""With calls that answer immediately both are shorter: the figure hardly varies."""
MEASURED_SECONDS = 90.0
MIN_THROUGHPUT_RATIO = 0.9
MIN_IN_FLIGHT = 100
SAMPLE_EVERY_SECONDS = 0.5


async def measured(engine: Engine, scale: float, *, sleeps: bool) -> dict[str, float]:
    """Figures of one claim loop."""
    duration = scale if sleeps else scale * IMMEDIATE_SHARE
    in_flight: list[int] = []
    in_slots: list[int] = []
    async with Load(engine, scale, sleeps=sleeps) as load:
        await asyncio.sleep(WARM_UP_SECONDS * duration)
        await engine.observe()
        before = engine.counts
        began = time.monotonic()
        while time.monotonic() - began < MEASURED_SECONDS * duration:
            await asyncio.sleep(SAMPLE_EVERY_SECONDS * scale)
            load.take_finished()
            in_flight.append(load.num_in_flight)
            in_slots.append(engine.num_running)
        await engine.observe()
        seconds = time.monotonic() - began
        after = engine.counts
    tokens = after.sampled_tokens - before.sampled_tokens
    return {
        "sampled_tokens_per_second": round(tokens / seconds, 1),
        "tokens_per_engine_step": round(tokens / max(after.steps - before.steps, 1), 2),
        "episodes_in_flight_mean": round(statistics.mean(in_flight), 1),
        "episodes_in_flight_most": max(in_flight),
        "turns_in_the_engine_mean": round(statistics.mean(in_slots), 2),
        "turns_in_the_engine_most": max(in_slots),
        "episodes_finished": load.num_finished,
        "kv_kept_tokens": load.kv_tokens("kept"),
        "kv_rebuilt_tokens": load.kv_tokens("rebuilt"),
        "preemptions": after.preemptions - before.preemptions,
    }


async def compare(folder: Path, scale: float) -> dict[str, Any]:
    make_tiny_model(folder / "model", max_length=2048)
    config = engine_config(folder)
    set_environment(config.generator)
    engine = await Engine.start(config, "benchmark", own_weights=True)
    try:
        first = await measured(engine, scale, sleeps=False)
        sleeping = await measured(engine, scale, sleeps=True)
        last = await measured(engine, scale, sleeps=False)
    finally:
        engine.shutdown()
    immediate = statistics.mean(each["sampled_tokens_per_second"] for each in (first, last))
    return {
        "slots": SLOTS,
        "call_seconds": [MIN_CALL_SECONDS * scale, MAX_CALL_SECONDS * scale],
        "immediate_calls_before": first,
        "sleeping_calls": sleeping,
        "immediate_calls_after": last,
        "throughput_ratio": round(sleeping["sampled_tokens_per_second"] / immediate, 3),
    }


def judge(figures: dict[str, Any]) -> dict[str, bool]:
    sleeping = figures["sleeping_calls"]
    return {
        "sampled tokens per second at least 0.9 of those with calls that answer immediately": (
            figures["throughput_ratio"] >= MIN_THROUGHPUT_RATIO
        ),
        "at least 100 episodes in flight": sleeping["episodes_in_flight_mean"] >= MIN_IN_FLIGHT,
        "never more turns in the engine than slots": sleeping["turns_in_the_engine_most"] <= SLOTS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.episodes", description="Episodes with slow tools."
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of calls and measurements; 1 writes the result"
    )
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(compare(Path(folder), scale))
    targets = judge(figures)
    for key, value in figures.items():
        print(f"{key:24} {value}")
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    if scale == 1.0:
        print(write_result("episodes", figures | {"targets": targets}))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
