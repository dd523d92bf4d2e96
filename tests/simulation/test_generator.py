"""The engine-sharing model against a loop over small slices of time."""

from __future__ import annotations

import random

import pytest

from rollcast.simulation.generator import Attempt, EngineSpeed, SimulatedGenerator
from rollcast.simulation.workload import Task, Workload, constant, lognormal

SLICE = 1e-3


def slow_ends(engine: EngineSpeed, starts: list[tuple[float, tuple[float, ...]]]) -> list[float]:
    """End of each group, by letting every running rollout decode for one slice of time after
    another.
    """
    left = [list(lengths) for _, lengths in starts]
    ends: list[float | None] = [None] * len(starts)
    now = 0.0
    while None in ends:
        running = [
            (i, r)
            for i, (at, _) in enumerate(starts)
            if at <= now
            for r, n in enumerate(left[i])
            if n > 0
        ]
        for i, r in running:
            left[i][r] -= SLICE / engine.step_seconds(len(running))
        now += SLICE
        for i, (at, _) in enumerate(starts):
            if ends[i] is None and at <= now and max(left[i]) <= 0:
                ends[i] = now
    return [end for end in ends if end is not None]


@pytest.mark.parametrize("seed", range(5))
def test_rollouts_share_the_engine(seed: int) -> None:
    rng = random.Random(seed)
    engine = EngineSpeed(slots=100, seconds_per_token=0.02, seconds_per_token_per_rollout=0.01)
    starts = sorted(
        (rng.uniform(0, 3), tuple(rng.uniform(1, 30) for _ in range(rng.randint(1, 3))))
        for _ in range(6)
    )
    generator = SimulatedGenerator(name=0, engine=engine, step=0)
    ends: dict[int, float] = {}
    pending = list(enumerate(starts))
    while len(ends) < len(starts):
        due = generator.next_end()
        if pending and (due is None or pending[0][1][0] <= due):
            sequence, (at, lengths) = pending.pop(0)
            generator.start(Attempt(sequence, Task(sequence, False, lengths), list(lengths)), at)
        else:
            assert due is not None
            finished = generator.finish_next(due)
            if finished is not None:
                ends[finished.sequence] = due
    expected = slow_ends(engine, starts)
    assert [ends[i] for i in range(len(starts))] == pytest.approx(expected, abs=0.02)
    assert generator.tokens == pytest.approx(sum(sum(lengths) for _, lengths in starts))


def test_a_group_handed_back_keeps_what_it_has_and_its_oldest_step() -> None:
    engine = EngineSpeed(slots=10, seconds_per_token=0.1)
    first, second = (
        SimulatedGenerator(name=0, engine=engine, step=5),
        SimulatedGenerator(name=1, engine=engine, step=4),
    )
    attempt = Attempt(0, Task(0, False, (10.0, 30.0)), [10.0, 30.0])
    first.start(attempt, 0.0)
    assert first.finish_next(1.0) is None
    first.step = 6
    first.stop(attempt, 2.0)
    assert attempt.remaining == pytest.approx([10.0])
    assert (attempt.oldest, attempt.newest) == (5, 6)
    second.start(attempt, 2.0)
    assert attempt.oldest == 4
    assert second.next_end() == pytest.approx(3.0)
    assert second.finish_next(3.0) is attempt
    assert first.running == second.running == 0


def test_a_dead_generator_makes_no_tokens() -> None:
    generator = SimulatedGenerator(
        name=0, engine=EngineSpeed(slots=1, seconds_per_token=1.0), step=0
    )
    generator.start(Attempt(0, Task(0, False, (5.0,)), [5.0]), 0.0)
    generator.advance(2.0)
    generator.alive = False
    generator.advance(4.0)
    assert (generator.tokens, generator.busy_seconds) == (2.0, 2.0)


def test_tasks_do_not_depend_on_what_happens_around_them() -> None:
    workload = Workload(
        lengths=lognormal(100, 1.0, 400), rollouts_per_group=4, filtered=0.5, seed=3
    )
    assert workload.task(17) == workload.task(17)
    tasks = [workload.task(number) for number in range(2000)]
    lengths = sorted(length for task in tasks for length in task.lengths)
    assert lengths[len(lengths) // 2] == pytest.approx(100, rel=0.05)
    assert max(lengths) == 400
    assert sum(task.filtered for task in tasks) == pytest.approx(1000, abs=110)
    assert Workload(lengths=constant(7)).task(0).lengths == (7,)
