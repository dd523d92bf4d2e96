"""What the staleness bound costs, simulated around the real gate and schedule; writes
lab/results/staleness.json.

A trainer step takes 1 s; 48 groups a step; lognormal lengths (sigma 0.8) whose median is a quarter
of the longest, which the token budget cuts there; generators without a limit of slots, so that
every idle second is the bound's. Shares are of the trainer's time after the first 50 of 350 steps.

    idle        the trainer waits, by length of the longest group in steps
    schedules   lags and the two extremes, longest group 6 steps, publish 0.1 s; groups per second
                of trained ones
    fleet       generators that deliver 0.8 to 2 times what the trainer uses
    strictness  random runs with slow, killed, drained and joining generators and trainer restarts
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from functools import partial
from typing import Any

from rollcast.recipe.schedule import PipelineRL, PPOOffPolicy, Schedule
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import DeadlockError, Pipeline, SimulatedTrainer
from rollcast.simulation.workload import Workload, lognormal
from testkit.record import LAB_RESULTS, write_result
from testkit.simulation.faulty_pipeline import FaultTimes, FaultyPipeline

GROUPS_PER_STEP = 48
TOKENS_PER_SECOND = 100.0
SKIPPED, STEPS = 50, 350
EXPECTED_IDLE = {7: 0.002, 9: 0.10, 10: 0.17, 16: 0.44}
"""The price as it was estimated when the bound was designed."""


def workload(longest: float, sigma: float = 0.8) -> Workload:
    """Return groups whose longest lasts `longest` steps."""
    return Workload(
        lengths=lognormal(0.25 * longest * TOKENS_PER_SECOND, sigma, longest * TOKENS_PER_SECOND)
    )


def run(
    schedule: Schedule, tasks: Workload, *, slots: int = 10**9, publish: float = 0.05
) -> dict[str, Any]:
    """Return the steady figures of one run."""
    pipeline = Pipeline(
        schedule=schedule,
        workload=tasks,
        engines=[EngineSpeed(slots=slots, seconds_per_token=1 / TOKENS_PER_SECOND)],
        delays=Delays(publish=publish),
    )
    started = time.perf_counter()
    report = pipeline.run(steps=STEPS, max_events=10**8)
    wall = time.perf_counter() - started
    elapsed = report.step_times[-1] - report.step_times[SKIPPED]
    groups = sum(report.staleness.values())
    return {
        "idle_share": round(1 - (STEPS - 1 - SKIPPED) / elapsed, 4),
        "mean_staleness": round(
            sum(age * count for age, count in report.staleness.items()) / groups, 2
        ),
        "max_staleness": max(report.staleness),
        "groups_per_second": round(GROUPS_PER_STEP * (STEPS - 1 - SKIPPED) / elapsed, 2),
        "wait_seconds": {
            str(reason): round(seconds, 1)
            for reason, seconds in sorted(report.wait_seconds.items())
        },
        "simulated_groups_per_wall_second": round(groups / wall),
    }


def idle_by_longest_group() -> list[dict[str, Any]]:
    """Return one row per length of the longest group."""
    pipeline = PipelineRL(max_staleness=8, groups_per_step=GROUPS_PER_STEP)
    return [
        {
            "longest_group_steps": longest,
            "expected_idle_share": EXPECTED_IDLE.get(longest),
            **run(pipeline, workload(longest)),
        }
        for longest in (4, 5, 6, 7, 8, 9, 10, 12, 16)
    ]


def schedules() -> list[dict[str, Any]]:
    """Return one row per schedule on the same tasks."""
    named: dict[str, Schedule] = {
        f"pipeline-{lag}": PipelineRL(max_staleness=lag, groups_per_step=GROUPS_PER_STEP)
        for lag in (0, 1, 2, 4, 8, 12)
    }
    named["ppo-off-policy-8"] = PPOOffPolicy(updates=8, groups_per_step=GROUPS_PER_STEP)
    return [
        {"schedule": name, **run(schedule, workload(6), publish=0.1)}
        for name, schedule in named.items()
    ]


def fleet_sizes() -> list[dict[str, Any]]:
    """Return one row per capacity of the fleet, relative to what the trainer uses."""
    tasks, rng = workload(6), random.Random(0)
    mean_seconds = sum(tasks.lengths(rng) for _ in range(20_000)) / 20_000 / TOKENS_PER_SECOND
    pipeline = PipelineRL(max_staleness=8, groups_per_step=GROUPS_PER_STEP)
    return [
        {
            "capacity": capacity,
            **run(
                pipeline, tasks, slots=round(capacity * GROUPS_PER_STEP * mean_seconds), publish=0.1
            ),
        }
        for capacity in (0.8, 1.0, 1.1, 1.25, 1.5, 2.0)
    ]


def disturbed(seed: int, lag: int) -> FaultyPipeline:
    """Return a run with a slow generator, a kill, a drain, a join and a trainer restart at random
    times.
    """
    rng = random.Random(seed)
    engine = EngineSpeed(slots=40, seconds_per_token=0.01)
    slow = EngineSpeed(slots=40, seconds_per_token=0.01 * rng.choice([1, 3, 20]))
    pipeline = FaultyPipeline(
        schedule=PipelineRL(max_staleness=lag, groups_per_step=rng.randint(1, 8)),
        workload=Workload(
            lengths=lognormal(100, rng.choice([0.5, 1.5]), 3000),
            filtered=rng.choice([0, 0.5]),
            seed=seed,
        ),
        engines=[engine, slow, slow],
        trainer=SimulatedTrainer(spread=0.5),
        faults=FaultTimes(checkpoint_every=rng.randint(1, 5)),
        delays=Delays(publish=rng.choice([0.05, 0.7, 2.5])),
        claims_seen_late=True,
        seed=seed,
    )
    fleet = pipeline.fleet
    for change in (
        pipeline.restart_trainer,
        partial(fleet.kill, 1),
        partial(fleet.drain, 2),
        partial(fleet.join, engine),
    ):
        pipeline.schedule_at(rng.uniform(0, 60), change)
    return pipeline


def strictness(runs: int = 340) -> dict[str, Any]:
    """Return totals over disturbed runs, twenty for each lag from 0 to 16."""
    violations = deadlocks = 0
    groups: Counter[str] = Counter()
    for seed in range(runs):
        lag = seed % 17
        pipeline = disturbed(seed, lag)
        try:
            pipeline.run(steps=60)
        except DeadlockError:
            deadlocks += 1
        violations += sum(count for age, count in pipeline.report.staleness.items() if age > lag)
        groups += pipeline.report.groups
    return {
        "runs": runs,
        "groups_older_than_lag": violations,
        "deadlocks": deadlocks,
        "groups": dict(groups),
    }


def main() -> None:
    figures = {
        "idle": idle_by_longest_group(),
        "schedules": schedules(),
        "fleet": fleet_sizes(),
        "strictness": strictness(),
    }
    path = write_result("staleness", figures, LAB_RESULTS)
    print(json.dumps(figures, indent=1))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
