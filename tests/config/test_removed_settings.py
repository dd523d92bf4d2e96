"""Run files of earlier versions: a removed setting is ignored if it asks for what is done today,
else named.
"""

from __future__ import annotations

import pytest

from rollcast.config.run import WrongSettingsError, parse_run_config

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
        "was faster wherever "
        "it was measured; remove it"
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
        "and its HTTP API "
        "answers the same (docs/reference/http.md); remove it"
    )


def test_overlapping_is_refused_if_it_was_switched_on() -> None:
    parse_run_config(SMALLEST | {"weights": {"overlap_training": False}}, source="run.json")
    with pytest.raises(
        WrongSettingsError,
        match=r"^run\.json: weights\.overlap_training is not a setting any more: .*; remove it$",
    ):
        parse_run_config(SMALLEST | {"weights": {"overlap_training": True}}, source="run.json")
