"""An autoscaler's loop next to the tests' API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.autoscaler.api_server import connect
from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.deployment import Deployment
from rollcast.autoscaler.loop import Loop
from rollcast.autoscaler.sources import open_source
from rollcast.config.run import parse_run_config
from rollcast.telemetry.exporter import Exporter
from tests.autoscaler.api_server import NAME, NAMESPACE, ApiServer


def watching(
    server: ApiServer, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str, **settings: Any
) -> tuple[Loop, DecisionBoard]:
    """An autoscaler that has just started and finds no metrics page, and its board."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(folder)))
    given = {"mode": mode, "deployment": NAME, "least": 2, **settings}
    config = parse_run_config(
        {"run": "demo", "folder": str(folder), "model": {"path": "m"}, "autoscaler": given},
        source="test",
    )
    source = open_source(config.autoscaler.source, config.http, config.run, config.run_folder)
    deployment = Deployment(connect("autoscaler.deployment"), NAMESPACE, NAME)
    board = DecisionBoard()
    return Loop(config, source, deployment, board, Exporter("r")), board
