"""The model against runs whose course is known beforehand."""

from __future__ import annotations

import dataclasses

import pytest

from rollcast.recipe.schedule import PipelineRL, PipelineState, PPOOffPolicy
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import DeadlockError, Pipeline
from rollcast.simulation.workload import Workload, constant, lognormal
from testkit.simulation.faulty_pipeline import FaultTimes, FaultyPipeline

INSTANT = Delays(publish=0.0, join=0.0)


def pipeline(
    schedule: PipelineRL | PPOOffPolicy,
    seconds: float,
    *,
    slots: int = 10**6,
    delays: Delays = INSTANT,
    generators: int = 1,
    **workload: float,
) -> FaultyPipeline:
    """Every rollout takes `seconds`; a trainer step takes 1 s."""
    return FaultyPipeline(
        schedule=schedule,
        workload=Workload(lengths=constant(seconds * 100), **workload),  # type: ignore[arg-type]
        engines=[EngineSpeed(slots=slots, seconds_per_token=0.01)] * generators,
        delays=delays,
        faults=FaultTimes(detect=1.0),
    )


def test_on_policy_alternates_generation_and_training() -> None:
    model = pipeline(PipelineRL(max_staleness=0, groups_per_step=4), seconds=3.0)
    report = model.run(steps=10)
    assert report.step_times == pytest.approx([4.0 * (i + 1) for i in range(10)])
    assert report.wait_seconds["batch"] == pytest.approx(30.0) == sum(report.wait_seconds.values())
    assert dict(report.staleness) == {0: 40}


def test_ppo_off_policy_generates_once_for_k_steps() -> None:
    report = pipeline(PPOOffPolicy(updates=4, groups_per_step=2), seconds=3.0).run(steps=8)
    assert report.step_times == pytest.approx([4, 5, 6, 7, 11, 12, 13, 14])


@pytest.mark.parametrize("seconds", [2.0, 5.0, 6.9])
def test_a_pipeline_hides_generation_up_to_its_slack(seconds: float) -> None:
    """Groups that last up to k - 1 steps never make a trainer wait once the window is open."""
    report = pipeline(PipelineRL(max_staleness=8, groups_per_step=4), seconds=seconds).run(steps=80)
    late = report.step_times[40:]
    assert late[-1] - late[0] == pytest.approx(len(late) - 1)


@pytest.mark.parametrize("seconds", [10.0, 16.0])
def test_equally_long_groups_are_limited_by_the_window(seconds: float) -> None:
    """k batches are outstanding, each for its generation and one step: k steps per L + 1 seconds
    (Little's law).
    """
    report = pipeline(PipelineRL(max_staleness=8, groups_per_step=4), seconds=seconds).run(
        steps=120
    )
    late = report.step_times[40:]
    assert (len(late) - 1) / (late[-1] - late[0]) == pytest.approx(8 / (seconds + 1), rel=0.02)


def test_one_slow_group_per_batch_is_waited_for_after_k_steps() -> None:
    """Every batch holds groups of 12 s.

    While one lasts k steps are made, then the step that uses it: 9 per 13 s.
    """
    workload = Workload(lengths=lambda rng: 1200.0 if rng.random() < 0.2 else 50.0)
    report = Pipeline(
        schedule=PipelineRL(max_staleness=8, groups_per_step=48),
        workload=workload,
        engines=[EngineSpeed(slots=10**6, seconds_per_token=0.01)],
        delays=INSTANT,
    ).run(steps=150)
    assert report.step_times[-1] - report.step_times[-91] == pytest.approx(10 * 13.0, rel=0.01)
    assert report.wait_seconds["straggler"] > 4 * report.wait_seconds["batch"], (
        "only the first batch is missing"
    )
    assert max(report.staleness) == 8


@pytest.mark.parametrize(("longest", "idle"), [(7, 0.0), (9, 0.10), (10, 0.18), (16, 0.47)])
def test_the_price_of_the_bound_with_lognormal_lengths(longest: int, idle: float) -> None:
    """P = 48, k = 8: what docs and benchmarks/staleness say."""
    report = Pipeline(
        schedule=PipelineRL(max_staleness=8, groups_per_step=48),
        workload=Workload(lengths=lognormal(25 * longest, 0.8, 100 * longest)),
        engines=[EngineSpeed(slots=10**6, seconds_per_token=0.01)],
    ).run(steps=150)
    late = report.step_times[50:]
    assert 1 - (len(late) - 1) / (late[-1] - late[0]) == pytest.approx(idle, abs=0.02)


def test_generation_is_the_bottleneck_when_slots_are_few() -> None:
    """4 slots and 2 s a group give 2 groups a second: 4 groups, one step, every 2 s."""
    report = pipeline(PipelineRL(max_staleness=8, groups_per_step=4), seconds=2.0, slots=4).run(
        steps=60
    )
    assert report.step_times[-1] - report.step_times[20] == pytest.approx(2.0 * 39)
    assert set(report.wait_seconds) == {"batch"}


def test_a_slow_publish_is_a_wait_for_weights_and_coalesces() -> None:
    delays = Delays(publish=3.0, join=0.0)
    report = pipeline(
        PipelineRL(max_staleness=8, groups_per_step=4), seconds=0.1, delays=delays
    ).run(steps=30)
    assert report.wait_seconds["weights"] > 30
    assert report.wait_seconds["straggler"] == 0


def test_filtered_batches_make_no_step_and_return_their_credit() -> None:
    report = pipeline(
        PipelineRL(max_staleness=8, groups_per_step=1), seconds=1.0, filtered=0.5
    ).run(steps=100)
    assert report.groups["used"] == 100
    assert report.groups["filtered"] == pytest.approx(100, abs=45)


def test_nothing_but_filtered_groups_never_ends_and_says_so() -> None:
    with pytest.raises(DeadlockError, match="after 5000 events"):
        pipeline(PipelineRL(max_staleness=8, groups_per_step=1), seconds=1.0, filtered=1.0).run(
            steps=1, max_events=5000
        )


def test_without_generators_nothing_happens_and_it_says_so() -> None:
    with pytest.raises(DeadlockError, match="waiting for batch"):
        pipeline(PipelineRL(max_staleness=8, groups_per_step=1), seconds=1.0, generators=0).run(
            steps=1
        )


def test_a_killed_generator_costs_its_detection_and_its_groups() -> None:
    model = pipeline(
        PipelineRL(max_staleness=8, groups_per_step=4), seconds=2.0, slots=8, generators=2
    )
    model.schedule_at(10.5, lambda: model.fleet.kill(1))
    report = model.run(steps=60)
    assert report.groups["lost"] == 8
    assert report.groups["used"] == 240


def test_a_drained_generator_loses_nothing() -> None:
    model = pipeline(
        PipelineRL(max_staleness=8, groups_per_step=4), seconds=2.0, slots=8, generators=2
    )
    model.schedule_at(10.5, lambda: model.fleet.drain(1))
    report = model.run(steps=60)
    assert report.groups["lost"] == report.groups["given_up"] == 0
    tokens = sum(generator.tokens for generator in model.fleet.generators.values())
    finished = report.groups["used"] + sum(attempt.ready for attempt in model.outstanding)
    assert tokens == pytest.approx(200 * finished, rel=0.05), "no token was sampled twice"


def test_a_joiner_shortens_the_steps() -> None:
    model = pipeline(PipelineRL(max_staleness=8, groups_per_step=4), seconds=2.0, slots=2)
    model.schedule_at(100.0, lambda: model.fleet.join(EngineSpeed(slots=2, seconds_per_token=0.01)))
    model.run_until(100.0)
    before = model.step
    model.run_until(200.0)
    assert model.step - before == pytest.approx(2 * before, rel=0.1)


def test_after_a_restart_the_checkpoint_is_continued_without_a_burst() -> None:
    model = pipeline(PipelineRL(max_staleness=8, groups_per_step=4), seconds=2.0)
    model.schedule_at(20.5, model.restart_trainer)
    model.run_until(20.4)
    assert model.step == 15
    states: list[PipelineState] = []
    real = model._state
    model._state = lambda: states.append(real()) or states[-1]  # type: ignore[func-returns-value, method-assign]
    model.run_until(30.0)
    assert (states[0].step, states[0].steps_since_start) == (15, 0)
    survivors = len(states[0].groups)
    assert all(
        len(state.groups) <= max(4 * (1 + state.steps_since_start), survivors) for state in states
    )


def test_the_first_batches_are_not_the_shortest_groups() -> None:
    """With the whole window open from the start they would be."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class OpenAtOnce(PipelineRL):
        def dispatch(self, state: PipelineState) -> int:
            return PipelineRL.dispatch(self, dataclasses.replace(state, steps_since_start=99))

    def first_batch(schedule: PipelineRL) -> set[int]:
        workload = Workload(lengths=lognormal(200, 1.0, 1000))
        engines = [EngineSpeed(slots=10**6, seconds_per_token=0.01)]
        report = FaultyPipeline(
            schedule=schedule, workload=workload, engines=engines, delays=INSTANT
        ).run(steps=1)
        return {number for _, number in report.history}

    workload = Workload(lengths=lognormal(200, 1.0, 1000))
    shortest = sorted(range(8 * 24), key=lambda number: workload.task(number).lengths)[:24]
    assert first_batch(PipelineRL(max_staleness=8, groups_per_step=24)) == set(range(24))
    assert first_batch(OpenAtOnce(max_staleness=8, groups_per_step=24)) == set(shortest)
