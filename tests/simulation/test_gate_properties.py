"""The real gate and schedule in simulated runs: never a token older than k, never a deadlock, no
task twice or never.

And the proof that the simulator would notice: weakened gates are caught.
test_many_simulated_runs.py draws more runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings

from rollcast.recipe import schedule as schedule_module
from rollcast.recipe import staleness
from rollcast.recipe.schedule import PipelineRL, PPOOffPolicy
from rollcast.recipe.staleness import Group
from rollcast.simulation.generator import Attempt
from rollcast.simulation.pipeline import Pipeline
from testkit.simulation.faulty_pipeline import FaultyPipeline
from tests.simulation.scenarios import Fault, Scenario, scenarios, violation

simulated = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(scenario=scenarios())
@simulated
def test_undisturbed_runs(scenario: Scenario) -> None:
    assert violation(scenario) is None


@given(scenario=scenarios(fault_kinds=("kill", "drain", "join")))
@simulated
def test_generators_come_go_and_die(scenario: Scenario) -> None:
    assert violation(scenario) is None


@given(scenario=scenarios(fault_kinds=("kill", "drain", "join", "restart", "restart")))
@simulated
def test_the_trainer_restarts_too(scenario: Scenario) -> None:
    assert violation(scenario) is None


SLOW = Scenario(
    schedule=PipelineRL(max_staleness=4, groups_per_step=3),
    median=1.0,
    sigma=1.5,
    budget=30.0,
    slots=(60, 60),
    slowness=(1.0, 3.0),
    spread=0.5,
    steps=60,
)
"""Long tails, the trainer often waits for stragglers."""

LATE_WEIGHTS = dataclasses.replace(SLOW, publish=2.5, claims_seen_late=True)
FILTERED = dataclasses.replace(SLOW, filtered=0.8)
"""Batches without an update return their credit at one version: many more than P groups share a
deadline."""
KILLED = dataclasses.replace(
    SLOW, faults=(Fault(3.0, "kill"), Fault(5.0, "join"), Fault(9.0, "kill"))
)


def caught(*runs: Scenario) -> bool:
    return any(
        violation(dataclasses.replace(run, seed=seed)) is not None
        for run in runs
        for seed in range(10)
    )


def test_the_real_gate_passes_the_runs_that_catch_the_weakened_ones() -> None:
    assert not caught(SLOW, LATE_WEIGHTS, FILTERED, KILLED)


def test_waiting_only_for_what_is_due_now_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def due_now(
        remaining: Iterable[Group],
        *,
        floor: int,
        max_staleness: int,
        step: int,
        groups_per_step: int,
    ) -> list[Group]:
        return [
            g
            for g in remaining
            if staleness.deadline(g, floor=floor, max_staleness=max_staleness) <= step
            and not g.ready
        ]

    monkeypatch.setattr(staleness, "stragglers", due_now)
    assert caught(FILTERED)


def test_not_waiting_at_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staleness, "stragglers", lambda remaining, **at: ())
    assert caught(SLOW)


def test_a_window_of_one_more_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = staleness.window
    monkeypatch.setattr(
        staleness,
        "window",
        lambda *, groups_per_step, **at: (
            real(groups_per_step=groups_per_step, **at) + groups_per_step
        ),
    )
    assert caught(SLOW, LATE_WEIGHTS)


def test_taking_the_newest_groups_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(
        groups: Iterable[Group], *, floor: int, max_staleness: int, count: int
    ) -> tuple[Group, ...]:
        ready = sorted(
            (g for g in groups if g.ready),
            key=lambda g: -staleness.deadline(g, floor=floor, max_staleness=max_staleness),
        )
        return tuple(ready[:count])

    monkeypatch.setattr(staleness, "oldest_ready", newest)
    assert caught(SLOW)


def test_not_waiting_for_acknowledgements_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        schedule_module.Schedule, "_weights_are_late", lambda schedule, state: False
    )
    assert caught(LATE_WEIGHTS)


def test_credit_that_lost_groups_keep_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission budget that is never refunded for dead groups ends in a deadlock."""
    monkeypatch.setattr(FaultyPipeline, "_lost", lambda pipeline, attempts: pipeline._decide())
    assert caught(KILLED)


def test_credit_that_filtered_groups_keep_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Pipeline._settle

    def forgetful(pipeline: Pipeline, batch: list[Attempt]) -> None:
        real(pipeline, batch)
        for attempt in batch:
            if attempt.task.filtered:
                attempt.ready = False
                pipeline._outstanding[attempt.sequence] = attempt

    monkeypatch.setattr(Pipeline, "_settle", forgetful)
    assert caught(FILTERED)


def test_ppo_off_policy_is_never_older_than_its_round() -> None:
    run = dataclasses.replace(SLOW, schedule=PPOOffPolicy(updates=8, groups_per_step=3))
    pipeline = run.pipeline()
    assert violation(run, pipeline) is None
    assert sorted(pipeline.report.staleness) == list(range(8))
