"""A fleet that is changed while it works: nothing lost, bounds kept, devices counted, speeds as the
formulas say.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import Attempt, EngineSpeed, SimulatedGenerator
from rollcast.simulation.pipeline import Pipeline, SimulatedTrainer
from rollcast.simulation.workload import Task, Workload, constant, lognormal
from testkit.autoscaler.scaled_fleet import PodTimes, ScaledFleet
from testkit.simulation.faulty_pipeline import FaultyPipeline

ENGINE = EngineSpeed(slots=12, seconds_per_token=0.01, seconds_per_context_token=1e-5)


def scaled(generators: int, *, seed: int = 0, start_up: float = 3.0) -> ScaledFleet:
    pipeline = FaultyPipeline(
        schedule=PipelineRL(max_staleness=4, groups_per_step=4),
        workload=Workload(lengths=lognormal(60, 0.8, 400), rollouts_per_group=3, seed=seed),
        engines=[ENGINE] * generators,
        trainer=SimulatedTrainer(step=0.5, per_token=1e-4, spread=0.2),
        delays=Delays(publish=0.1),
        fresh=True,
        seed=seed,
    )
    return ScaledFleet(pipeline, ENGINE, PodTimes(start_up=start_up, drain=2.0))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 8)), max_size=8), st.integers(0, 1000))
def test_whatever_the_sizes_no_task_is_lost_or_done_twice_and_no_token_is_too_old(
    changes: list[tuple[float, int]], seed: int
) -> None:
    fleet = scaled(2, seed=seed)
    for time, size in changes:
        fleet.pipeline.schedule_at(time, lambda size=size: fleet.resize(size))  # type: ignore[misc]
    report = fleet.pipeline.run(steps=60)
    assert max(report.staleness) <= 4
    assert report.groups["lost"] == report.groups["given_up"] == 0
    settled = [number for _, number in report.history]
    under_way = [attempt.task.number for attempt in fleet.pipeline.outstanding]
    assert sorted(settled + under_way) == list(range(report.dispatched))
    assert all(1 <= size <= 8 for _, size in fleet.sizes)


@given(st.lists(st.tuples(st.floats(0.5, 10), st.integers(1, 6)), min_size=1, max_size=8))
@settings(deadline=None, max_examples=40)
def test_a_pod_costs_from_when_it_is_asked_for_until_it_has_drained(
    changes: list[tuple[float, int]],
) -> None:
    """Against the area under the sizes: pods that start count, those
    that drained count 2 s longer.
    """
    fleet = scaled(3)
    expected, size, working, now = 0.0, 3, 3, 0.0
    starting: list[float] = []
    for wait, wanted in changes:
        end = now + wait
        fleet.pipeline.run_until(end)
        expected += size * wait
        working += sum(joins <= end for joins in starting)
        starting = [joins for joins in starting if joins > end]
        fleet.resize(wanted)
        starting += [end + 3.0] * (wanted - size)
        given_up = min(max(size - wanted, 0), len(starting))
        starting = starting[: len(starting) - given_up]
        drained = max(size - wanted, 0) - given_up
        working -= drained
        expected += 2.0 * drained
        size, now = wanted, end
        assert fleet.pods == wanted
        assert len(fleet.working) == working
    assert fleet.generator_seconds == pytest.approx(expected)


def test_those_with_the_fewest_tokens_in_flight_go() -> None:
    fleet = scaled(4)
    fleet.pipeline.run_until(7.3)
    fleet.pipeline.read()
    inflight = {generator.name: generator.inflight_tokens for generator in fleet.working}
    assert len(set(inflight.values())) > 1
    fleet.resize(2)
    left = {generator.name for generator in fleet.working}
    assert max(inflight[name] for name in inflight.keys() - left) <= min(
        inflight[name] for name in left
    )


def test_tokens_in_flight_are_those_of_unfinished_rollouts() -> None:
    generator = SimulatedGenerator(
        name=0, engine=EngineSpeed(slots=8, seconds_per_token=0.1), step=0
    )
    generator.start(Attempt(0, Task(0, False, (10.0, 30.0)), [10.0, 30.0]), 0.0)
    generator.advance(0.5)
    generator.start(Attempt(1, Task(1, False, (40.0,)), [40.0]), 0.5)
    generator.advance(0.9)
    assert generator.inflight_tokens == pytest.approx(9 + 9 + 4)
    generator.finish_next(1.0)
    assert generator.inflight_tokens == pytest.approx(10 + 5)


def test_an_engine_step_takes_longer_with_more_context() -> None:
    engine = EngineSpeed(
        slots=8,
        seconds_per_token=0.01,
        seconds_per_token_per_rollout=0.001,
        seconds_per_context_token=1e-4,
    )
    generator = SimulatedGenerator(name=0, engine=engine, step=0)
    generator.start(
        Attempt(0, Task(0, False, (100.0, 300.0), prompt_tokens=20.0), [100.0, 300.0]), 0.0
    )
    both = 0.01 + 0.001 + 1e-4 * (20 + 50 + 20 + 150)
    assert generator.next_end() == pytest.approx(100 * both)
    generator.finish_next(100 * both)
    one = 0.01 + 1e-4 * (20 + 150)
    assert generator.next_end() == pytest.approx(100 * both + 200 * one)
    generator.stop(next(iter(generator.attempts.values())), 150 * both)
    assert generator.step_seconds == pytest.approx(0.01 - 0.001)


def test_a_task_is_as_long_as_its_number_says() -> None:
    flat = Workload(lengths=lognormal(100, 0.5, 300), rollouts_per_group=4, seed=3)
    growing = Workload(
        lengths=lognormal(100, 0.5, 300),
        rollouts_per_group=4,
        seed=3,
        scale=lambda number: 1 + number / 10,
    )
    for number in random.Random(0).sample(range(100), 10):
        assert growing.task(number).lengths == pytest.approx(
            [(1 + number / 10) * tokens for tokens in flat.task(number).lengths]
        )


def test_an_optimizer_step_takes_as_long_as_its_tokens_say() -> None:
    """Generators without limit: the trainer never waits, so steps follow one another at its own
    pace.
    """
    pipeline = Pipeline(
        schedule=PipelineRL(max_staleness=4, groups_per_step=5),
        workload=Workload(lengths=constant(20.0), rollouts_per_group=2),
        engines=[EngineSpeed(slots=10**6, seconds_per_token=1e-4)],
        trainer=SimulatedTrainer(step=0.3, per_token=0.01),
        delays=Delays(publish=0.001),
    )
    times = pipeline.run(steps=20).step_times
    assert times[19] - times[9] == pytest.approx(10 * (0.3 + 0.01 * 5 * 2 * 20))
