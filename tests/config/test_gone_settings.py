"""A run file of an earlier version is read, and what is gone is named with its replacement."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.config.run import RunConfig, parse_run_config


def parsed(forecaster: dict[str, Any]) -> RunConfig:
    data = {"run": "r", "model": {"path": "m"}, "forecaster": forecaster}
    return parse_run_config(data, source="run file old.yaml")


def test_a_setting_that_is_gone_is_named_with_its_replacement(capsys: pytest.CaptureFixture[str]) -> None:
    config = parsed({"grpc_port": 8403, "http_port": 8500})
    assert config.forecaster.http_port == 8500
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("run file old.yaml: forecaster.grpc_port = 8403: the forecaster has no gRPC API any more")
    assert "GET /api/runs/RUN/forecast" in told
    assert "remove it" in told


def test_the_resolved_file_of_an_earlier_run_is_read_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed({"grpc_port": 0}).forecaster.http_port == 8400
    assert capsys.readouterr().err == ""
