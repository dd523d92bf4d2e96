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
from rollcast.rollouts.records import Episode, EpisodeEnd, RolloutGroup
from rollcast.runfolder.records import EvaluationRecord, StepRecord, parse
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.environment_metrics import EnvironmentMetrics, mean_metrics
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_graded_rollout, make_task

UNUSABLE: dict[Any, Any] = {
    "": 1.0, "1st": 1.0, "a b": 1.0, "a/b": 1.0, "é": 1.0, "x" * 65: 1.0, 3: 1.0, None: 1.0,
    "text": "1", "none": None, "list": [1.0], "nan": float("nan"), "inf": float("inf"),
    "huge": 10**400, "large": -1e13,
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
    assert [dict(rollout.episode.metrics) for rollout in decoded.rollouts if rollout.episode] == [
        {"steps": 3.0},
        {},
    ]
    for forged in (
        {"nan": float("nan")},
        {"a b": 1.0},
        {f"m{number}": 0.0 for number in range(MAX_METRICS + 1)},
    ):
        with pytest.raises(CodecError, match="1 metrics out of bounds"):
            encode_group(make_group(ended("walk", **forged)))


def test_a_batch_has_the_mean_over_the_episodes_that_gave_a_number() -> None:
    exporter = Exporter("r")
    group = make_group(
        ended("walk", steps=3.0, doors=1.0), ended("walk", steps=5.0), ended("swim", steps=-2.0)
    )
    means = EnvironmentMetrics(exporter).export([group])
    assert means == {"swim": {"steps": -2.0}, "walk": {"doors": 1.0, "steps": 4.0}}
    labels = {"run": "r", "environment": "walk", "metric": "steps"}
    assert exporter.registry.get_sample_value("rollcast_environment_metric", labels) == 4.0
    record = parse(json.dumps({"step": 7, "environment_metrics": means}).encode(), StepRecord)
    assert make_step_entry(record, -1).numbers["train/environment/walk/steps"] == 4.0


def test_names_that_change_from_row_to_row_make_no_endless_series() -> None:
    exporter = Exporter("r")
    exported = EnvironmentMetrics(exporter)
    for step in range(100):
        exported.export([make_group(ended("walk", **{f"row{step}": 1.0}))])
    series = [
        sample
        for family in exporter.registry.collect()
        for sample in family.samples
        if sample.name == "rollcast_environment_metric"
    ]
    assert len(series) == MAX_METRICS
    left_out = {"run": "r", "environment": "walk"}
    assert (
        exporter.registry.get_sample_value("rollcast_environment_metrics_left_out_total", left_out)
        == 68
    )


def test_loggers_get_the_numbers_of_an_evaluation() -> None:
    means = mean_metrics([ended("walk", steps=3.0), ended("walk", steps=4.0)])
    record = EvaluationRecord(
        run="r", dataset="held-out", step=3, incarnation=1, compute_device_hours=0.1, pass_rate=0.5,
        environment_metrics=means,
    )  # fmt: skip
    assert make_evaluation_entry(record).numbers["eval/environment/steps"] == 3.5
