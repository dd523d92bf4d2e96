"""An environment's own numbers: bounded where they enter, averaged in a batch, handed
to loggers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollcast.loggers.entries import make_evaluation_entry, make_step_entry
from rollcast.rollouts.codec import decode_group, encode_group
from rollcast.rollouts.environment_metrics import MAX_METRICS, bound_metrics
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import Episode, EpisodeEnd, EpisodeTask, RolloutGroup
from rollcast.runfolder.episode_words import episodes_in_words
from rollcast.runfolder.records import EvaluationRecord, StepRecord, parse
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.environment_metrics import MetricMeans, export_means
from rollcast.trainer.control.evaluation import EvaluationPlan, Moment, OpenEvaluations
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout, make_task

UNUSABLE: dict[Any, Any] = {
    "": 1.0, "1st": 1.0, "a b": 1.0, "a/b": 1.0, "é": 1.0, "x" * 65: 1.0, 3: 1.0, None: 1.0,
    "text": "1", "none": None, "list": [1.0], "nan": float("nan"), "inf": float("inf"),
    "huge": 10**400, "large": -1e31,
}  # fmt: skip


def make_group(*episodes: Episode) -> RolloutGroup:
    version = PolicyVersion(1, 0)
    rollouts = [make_graded_rollout(index, 1.0, version) for index in range(len(episodes))]
    for rollout, episode in zip(rollouts, episodes, strict=True):
        rollout.episode = episode
    return make_answer_group(
        make_task(1, num_rollouts=len(episodes)), rollouts, first_version=version
    )


def ended(environment: str, **metrics: float) -> Episode:
    return Episode(environment, end=EpisodeEnd.ANSWERED, metrics=metrics)


def test_only_numbers_with_usable_names_and_few_of_them_enter() -> None:
    assert bound_metrics({**UNUSABLE, "steps": 3, "is_open": True, "rooms.num-doors": -0.5}) == {
        "steps": 3.0, "is_open": 1.0, "rooms.num-doors": -0.5,
    }  # fmt: skip
    assert list(bound_metrics({f"m{number}": number for number in range(100)})) == [
        f"m{n}" for n in range(MAX_METRICS)
    ]


def test_they_cross_the_wire_and_forged_ones_do_not() -> None:
    group = make_group(ended("walk", steps=3.0), ended("walk"))
    decoded = decode_group(encode_group(group))
    episodes = [rollout.episode for rollout in decoded.rollouts if rollout.episode]
    assert [dict(episode.metrics) for episode in episodes] == [{"steps": 3.0}, {}]
    many = {f"m{number}": 0.0 for number in range(MAX_METRICS + 1)}
    for forged in ({"nan": float("nan")}, {"a b": 1.0}, many):
        with pytest.raises(CodecError, match="metrics out of bounds: 1"):
            encode_group(make_group(ended("walk", **forged)))


def test_a_batch_has_the_mean_over_the_episodes_that_gave_a_number() -> None:
    exporter = Exporter("r")
    group = make_group(
        ended("walk", steps=3.0, doors=1.0), ended("walk", steps=5.0), ended("swim", steps=-2.0)
    )
    means = MetricMeans().mean([group])
    assert means == {"walk": {"steps": 4.0, "doors": 1.0}, "swim": {"steps": -2.0}}
    export_means(exporter, means)
    labels = {"run": "r", "environment": "walk", "name": "steps"}
    assert exporter.registry.get_sample_value("rollcast_environment_metric", labels) == 4.0
    line = {
        "step": 7,
        "episode_turns_mean": 2.0,
        "episode_calls_mean": 1.0,
        "environment_metrics": means,
    }
    record = parse(json.dumps(line).encode(), StepRecord)
    assert make_step_entry(record, -1).numbers["train/environment/walk/steps"] == 4.0
    assert "walk: steps 4, doors 1" in episodes_in_words(record)


def test_names_that_change_from_row_to_row_make_no_endless_series() -> None:
    means = MetricMeans()
    kept = {
        name
        for row in range(100)
        for name in means.mean([make_group(ended("walk", **{f"row{row}": 1.0}))]).get("walk", {})
    }
    assert kept == {f"row{row}" for row in range(MAX_METRICS)}


@pytest.mark.parametrize("malformed", [None, {"walk": {"steps": None}}, ["walk"]])
def test_malformed_numbers_cost_a_record_nothing_else(malformed: object) -> None:
    evaluation = {
        "step": 3,
        "incarnation": 1,
        "run": "r",
        "dataset": "d",
        "compute_device_hours": 0.1,
        "pass_rate": 0.5,
        "environment_metrics": malformed,
    }
    record = parse(json.dumps(evaluation).encode(), EvaluationRecord)
    assert (record.pass_rate, record.environment_metrics) == (0.5, {})
    assert parse(json.dumps({"step": 3, "environment_metrics": malformed}).encode(), StepRecord)


def test_an_evaluation_has_the_means_of_each_environment_and_loggers_get_them() -> None:
    tasks = []
    for sequence, name in enumerate(("walk", "walk", "swim")):
        task = make_task(sequence, dataset="d", prompt_id=f"p{sequence}", num_rollouts=1)
        task.episode = EpisodeTask(name, "[]", 4, 60.0)
        tasks.append(task)
    evaluations = OpenEvaluations("run", deadline_seconds=60)
    evaluations.ask(EvaluationPlan("d", 5, 1), Moment(1, 7, 2.5, 0.5, 3, 99, 0.25, 0), tasks)
    given = ({"steps": 3.0}, {"steps": 5.0}, {"depth": 2.0})
    for task, metrics in zip(tasks, given, strict=True):
        assert task.episode is not None
        rollout = make_graded_rollout(0, 1.0, PolicyVersion(1, 0))
        rollout.episode = ended(task.episode.environment, **metrics)
        evaluations.add(make_answer_group(task, [rollout], first_version=PolicyVersion(1, 0)))
    (closed,) = evaluations.close_finished(generators=True)
    assert closed.evaluation is not None
    assert closed.evaluation.environment_metrics == {"walk": {"steps": 4.0}, "swim": {"depth": 2.0}}
    numbers = make_evaluation_entry(closed.evaluation).numbers
    assert numbers["eval/environment/walk/steps"] == 4.0
