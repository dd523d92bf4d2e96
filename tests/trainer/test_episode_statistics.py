"""Episodes that come back are counted by environment, stand in the step's record, and each
environment has a curve.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    EpisodeTask,
    Rollout,
    RolloutGroup,
    Turn,
)
from rollcast.runfolder.records import StepRecord, parse
from rollcast.telemetry.evaluation_metrics import is_own_curve
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.episode_statistics import count_episodes, statistics_of_episodes
from rollcast.trainer.control.evaluation import Closed, EvaluationPlan, Moment, OpenEvaluations
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout, make_task

NOW = Moment(1, 7, 2.5, 0.5, 3, 99, 0.25, 0)


def make_episode(
    environment: str, turns: int, end: EpisodeEnd = EpisodeEnd.ANSWERED, **fields: Any
) -> Episode:
    """Two calls in every turn, of which the last turn's second one is malformed."""
    made = [Turn(0, 2 * place, 2 * place + 1, tool_calls=2) for place in range(turns - 1)]
    made.append(Turn(0, 2 * turns, 2 * turns + 1, tool_calls=2, malformed_calls=1))
    return Episode(environment, turns=tuple(made), end=end, **fields)


def of_group(episodes: list[Episode | None]) -> RolloutGroup:
    version = PolicyVersion(1, 0)
    rollouts = [make_graded_rollout(index, 1.0, version) for index in range(len(episodes))]
    for rollout, episode in zip(rollouts, episodes, strict=True):
        rollout.episode = episode
    return make_answer_group(make_task(1), rollouts, first_version=version)


def sample(exporter: Exporter, name: str, **labels: str) -> float | None:
    return exporter.registry.get_sample_value(name, {"run": exporter.run, **labels})


def test_every_figure_is_counted_by_environment() -> None:
    branch = Branch(np.zeros(2, np.int32), np.zeros(3, np.int32), np.zeros(3, np.float32))
    episodes = [
        make_episode(
            "search", 3, environment_seconds=6.0, sampling_seconds=2.0, branches=(branch,)
        ),
        make_episode("search", 5, EpisodeEnd.TURNS, environment_seconds=1.0, sampling_seconds=1.0),
        make_episode("shell", 1, EpisodeEnd.FAILED, restarts=2, reason="it hangs"),
        None,
    ]
    count_episodes(exporter := Exporter("r"), of_group(episodes))
    of_search, of_shell = {"environment": "search"}, {"environment": "shell"}
    assert sample(exporter, "rollcast_episodes_total", end="answered", **of_search) == 1
    assert sample(exporter, "rollcast_episodes_total", end="turns", **of_search) == 1
    assert sample(exporter, "rollcast_episodes_total", end="failed", **of_shell) == 1
    assert sample(exporter, "rollcast_episode_turns_sum", **of_search) == 8
    assert sample(exporter, "rollcast_episode_turns_count", **of_search) == 2
    assert sample(exporter, "rollcast_episode_tool_calls_sum", **of_search) == 16
    assert sample(exporter, "rollcast_episode_malformed_calls_total", **of_search) == 2
    assert sample(exporter, "rollcast_episode_seconds_total", part="environment", **of_search) == 7
    assert sample(exporter, "rollcast_episode_seconds_total", part="sampling", **of_search) == 3
    assert sample(exporter, "rollcast_episode_branches_total", **of_search) == 1
    assert sample(exporter, "rollcast_episode_restarts_total", **of_shell) == 2


def test_a_step_has_the_means_of_its_episodes_and_nothing_without_any() -> None:
    episodes = [
        make_episode("search", 3, environment_seconds=6.0, sampling_seconds=2.0),
        make_episode("shell", 1, environment_seconds=0.0, sampling_seconds=4.0),
    ]
    statistics = statistics_of_episodes(episodes)
    assert statistics == {
        "episode_turns_mean": 2.0,
        "episode_calls_mean": 4.0,
        "malformed_calls_share": pytest.approx(2 / 8),
        "environment_seconds_share": pytest.approx(6 / 12),
    }
    assert (
        parse(json.dumps({"step": 1, **statistics}).encode(), StepRecord).environment_seconds_share
        == 0.5
    )
    assert statistics_of_episodes([]) == {}
    assert statistics_of_episodes([Episode("search")]) == {
        "episode_turns_mean": 0.0,
        "episode_calls_mean": 0.0,
    }


def close_one(environments: Sequence[str | None], plan: EvaluationPlan) -> Closed:
    """An evaluation of one prompt in each environment, the n-th answered right n times of 4."""
    tasks = []
    for sequence, name in enumerate(environments):
        task = make_task(sequence, dataset="d", prompt_id=f"p{sequence}")
        task.episode = EpisodeTask(name, "[]", 4, 60.0) if name else None
        tasks.append(task)
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    open_evaluations.ask(plan, NOW, tasks)
    version = PolicyVersion(1, 0)
    for sequence, task in enumerate(tasks):
        rollouts: list[Rollout] = [
            make_graded_rollout(index, float(index < sequence), version) for index in range(4)
        ]
        open_evaluations.add(make_answer_group(task, rollouts, first_version=version))
    (closed,) = open_evaluations.close_finished(generators=True)
    return closed


def closed_points(environments: Sequence[str | None], plan: EvaluationPlan) -> dict[str, float]:
    """Pass rates by label."""
    closed = close_one(environments, plan)
    assert closed.evaluation is not None
    return {point.dataset: point.pass_rate for point in (closed.evaluation, *closed.parts)}


def test_each_environment_of_a_data_set_has_a_curve_of_its_own() -> None:
    """A single data set with rows of several environments, one of them without any."""
    points = closed_points([None, "shell", "search", "search"], EvaluationPlan("d", 10, 4))
    assert points == {"d": 6 / 16, "environment:search": 5 / 8, "environment:shell": 1 / 4}
    assert [name for name in points if is_own_curve(name)] == ["d"]


def test_one_environment_is_the_whole_curve_and_a_downstream_set_stays_whole() -> None:
    assert set(closed_points(["shell", "shell"], EvaluationPlan("d", 10, 4))) == {"d"}
    assert set(closed_points([None, None], EvaluationPlan("d", 10, 4))) == {"d"}
    downstream = EvaluationPlan("downstream:d", 10, 4)
    assert set(closed_points(["shell", "search"], downstream)) == {"downstream:d"}


def test_a_mixture_has_both_curves() -> None:
    rng = random.Random(0)
    names = [rng.choice(["shell", "search"]) for _ in range(4)]
    points = closed_points(names, EvaluationPlan("both", 10, 4, {"d": 1.0}))
    assert set(points) == {"both", "part:d", "environment:shell", "environment:search"}


def test_samples_are_of_every_environment() -> None:
    closed = close_one(["shell"] * 6 + ["search", None], EvaluationPlan("d", 10, 4))
    assert [group.sequence for group in closed.sampled] == [0, 6, 7, 1]
