"""Run files of earlier versions: a removed setting is ignored if it asks for what is done today,
else named.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from rollcast.autoscaler.decision_memory import ReplicaLimits
from rollcast.config.other_names import removed_settings
from rollcast.config.run import WrongSettingsError, parse_run_config
from rollcast.generator.slots import claimable
from rollcast.recipe.staleness import drop_timeout_seconds
from rollcast.tasks.remote.llm_judge import BEST_SCORE

SMALLEST = {"run": "r", "model": {"path": "m"}}


def test_a_removed_setting_with_todays_meaning_is_accepted() -> None:
    data = SMALLEST | {"weights": {"encoding": "full", "bucket_bytes": 1 << 20}}
    assert parse_run_config(data, source="run.json").weights.bucket_bytes == 1 << 20
    assert data["weights"] == {"encoding": "full", "bucket_bytes": 1 << 20}, (
        "what was read is not changed"
    )


def test_a_removed_setting_with_another_meaning_is_named_with_the_remedy() -> None:
    with pytest.raises(WrongSettingsError) as raised:
        parse_run_config(SMALLEST | {"weights": {"encoding": "changed"}}, source="run.json")
    assert str(raised.value) == (
        "run.json: weights.encoding is not a setting any more: every version is sent whole, which "
        "was faster wherever it was measured; remove it"
    )


def test_the_port_of_the_forecasters_grpc_api_is_answered_with_the_http_api() -> None:
    assert (
        parse_run_config(
            SMALLEST | {"forecaster": {"grpc_port": 0}}, source="run.json"
        ).forecaster.http_port
        == 8400
    )
    with pytest.raises(WrongSettingsError) as raised:
        parse_run_config(SMALLEST | {"forecaster": {"grpc_port": 8403}}, source="run.json")
    assert str(raised.value) == (
        "run.json: forecaster.grpc_port is not a setting any more: the forecaster has no gRPC API, "
        "and its HTTP API answers the same (docs/reference/http.md); remove it"
    )


def test_accepted_values_are_those_of_the_code() -> None:
    accepted: dict[str, Any] = {
        name: removed.accepted for name, removed in removed_settings().items()
    }
    assert accepted["tasks.verifiers.best_score"] == BEST_SCORE
    assert accepted["autoscaler.most_batch_wait"] == ReplicaLimits.most_batch_wait
    assert accepted["autoscaler.probe_again_seconds"] == ReplicaLimits.probe_again_seconds
    assert drop_timeout_seconds(100, 1.0) == 100 * accepted["trainer.drop_after_budgets"]
    config = parse_run_config(SMALLEST, source="run.json")
    slots = claimable(config.generator, config.recipe, config.tasks, full_rollouts=8)
    assert slots.max_eval_share == accepted["tasks.evaluation.max_slot_share"]


def test_overlapping_is_refused_if_it_was_switched_on() -> None:
    parse_run_config(SMALLEST | {"weights": {"overlap_training": False}}, source="run.json")
    with pytest.raises(
        WrongSettingsError,
        match=r"^run\.json: weights\.overlap_training is not a setting any more: .*; remove it$",
    ):
        parse_run_config(SMALLEST | {"weights": {"overlap_training": True}}, source="run.json")


@pytest.mark.parametrize(
    ("group", "name", "today", "other", "today_words"),
    [
        ("tasks.evaluation", "max_slot_share", 0.5, 0.2, "half of a generator's slots"),
        ("trainer", "drop_after_budgets", 3.0, 5.0, "three times as long"),
        ("autoscaler", "margin", 0.01, 0.1, "1 % more"),
        ("autoscaler", "most_batch_wait", 0.02, 0.5, "2 % of its time"),
        ("autoscaler", "probe_again_seconds", 7200, 60, "two hours"),
        ("local", "restart_limit", 5, 0, "five times within ten minutes"),
    ],
)
def test_a_setting_that_became_a_constant_says_what_is_done(
    group: str, name: str, today: float, other: float, today_words: str
) -> None:
    def file(value: float) -> dict[str, Any]:
        inner: dict[str, Any] = {name: value}
        for outer in reversed(group.split(".")):
            inner = {outer: inner}
        return SMALLEST | inner

    assert parse_run_config(file(today), source="run.json") == parse_run_config(
        dict(SMALLEST), source="run.json"
    )
    with pytest.raises(WrongSettingsError) as raised:
        parse_run_config(file(other), source="run.json")
    assert re.fullmatch(
        rf"run\.json: {group}\.{name} is not a setting any more: .*{today_words}.*; remove it",
        str(raised.value),
    )


def test_the_scale_of_a_judge_is_found_among_several_verifiers() -> None:
    def file(best_score: float) -> dict[str, Any]:
        judge = {"kind": "llm-judge", "url": "http://127.0.0.1:9/v1", "model": "judge"}
        verifiers = [judge | {"name": "a"}, judge | {"name": "b", "best_score": best_score}]
        return SMALLEST | {"tasks": {"verifiers": verifiers}}

    config = parse_run_config(file(10), source="run.json")
    assert [verifier.name for verifier in config.tasks.verifiers] == ["a", "b"]
    with pytest.raises(WrongSettingsError) as raised:
        parse_run_config(file(5), source="run.json")
    assert str(raised.value) == (
        "run.json: tasks.verifiers.1.best_score is not a setting any more: a bare `Score: N` is N "
        "of 10; let `prompt` ask for a line with its scale, such as `Score: 4/5`, if that is "
        "another one; remove it"
    )
