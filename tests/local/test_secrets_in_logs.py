"""No secret is in what services write: logs, pages, files of status, messages of mistakes.

Services log at one level, their most verbose one, and are given failures here: addresses where
nothing listens, and passwords that a server refuses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from rollcast.config.connections import Redis, Rpc
from rollcast.config.errors import UserError
from rollcast.config.run import SECRET_VARIABLES, parse_run_config
from rollcast.connections.port_files import port_file, read_port
from rollcast.local.embedded_redis import wait_until_ready
from rollcast.local.ports import free_port
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.servers import Server, find_server
from testkit.system.harness import wait_for

SECRETS = {name: f"hunted-{number}" for number, name in enumerate(SECRET_VARIABLES)}
"""Environment variable -> its value."""
IN_ADDRESS = "hunted-in-an-address"


def found(text: str) -> list[str]:
    return [line for line in text.splitlines() if "hunted" in line]


def settings(folder: Path) -> dict[str, Any]:
    nowhere = f"http://me:{IN_ADDRESS}@127.0.0.1:{free_port('127.0.0.1')}"
    source = {"kind": "prometheus", "url": nowhere, "token": "hunted-token"}
    return {
        "run": "r",
        "folder": str(folder),
        "model": {"path": str(folder)},
        "redis": {"host": "127.0.0.1", "port": free_port("127.0.0.1"), "password": "hunted-r"},
        "forecaster": {"source": {**source, "every_seconds": 0.1}, "http_port": 0},
        "autoscaler": {"source": source, "mode": "hpa", "http_port": 0, "grpc_port": 0},
        "budget": {"steps": 1},
    }


@pytest.mark.parametrize("service", ["forecaster", "autoscaler"])
def test_no_secret_is_in_what_services_write(tmp_path: Path, service: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(settings(tmp_path)))
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", f"rollcast.{service}", "--config", str(file)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SECRETS},
        )
    try:
        place = port_file(tmp_path / "r", service)
        wait_for(lambda: place.exists() or process.poll() is not None, 60, service)
        wait_for(lambda: "cannot be read" in log.read_text(), 60, "a source that is away")
        pages = [
            httpx.get(
                f"http://127.0.0.1:{read_port(place)}{path}",
                headers={"Authorization": f"Bearer {SECRETS['ROLLCAST_HTTP_TOKEN']}"},
            )
            for path in ("/metrics", "/readyz", "/api/runs", "/openapi.json", "/")
        ]
        assert pages[0].status_code == 200
        assert not found("\n".join(page.text for page in pages))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
    assert log in written
    for path in written:
        assert not found(path.read_bytes().decode(errors="replace")), path


def test_no_secret_is_in_a_message_of_a_mistake(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wrong: list[dict[str, Any]] = [
        {"redis": {"password": ["hunted"]}},
        {"redis": {"passwrod": "hunted"}},
        {"redis": "redis://me:hunted@host:1"},
        {"forecaster": {"push_token": {"a": "hunted"}}},
        {"log": [{"kind": "mlflow", "url": "http://me:hunted@host/"}]},
        {"tasks": {"verifiers": [{"name": "v", "kind": "http", "url": "http://me:hunted@h/"}]}},
    ]
    for change in wrong:
        with pytest.raises(UserError) as caught:
            parse_run_config({**settings(tmp_path), **change}, source="run file")
        assert not found(str(caught.value)), change
    config = parse_run_config(settings(tmp_path), source="run file")
    assert not found(repr(config).replace(IN_ADDRESS, ""))
    server = Server(find_server("6.2"), tmp_path_factory.mktemp("redis"))
    server.start()
    try:
        with server.client() as administrator:
            administrator.config_set("requirepass", "right")
        for user in (None, "trainer", "nobody"):
            secret = {"username": user, "password": SecretStr("hunted")}
            refused: Redis = server.settings.model_copy(update=secret)
            for ask in (wait_until_ready, lambda it: RedisTrainerQueue(it, "r").outstanding()):
                with pytest.raises(UserError) as caught:
                    ask(refused)
                assert not found(str(caught.value))
        assert not found(repr(refused) + repr(Rpc(token=SecretStr("hunted"))))
    finally:
        server.stop()
