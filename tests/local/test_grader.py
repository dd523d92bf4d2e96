"""The grader that `rollcast up` starts: the process of its spec, started and asked."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rollcast.config.run import parse_run_config
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.local.preflight import resolve_ports
from rollcast.local.process import Service
from rollcast.local.services import service_specs
from rollcast.telemetry.exporter import Exporter

SECRETS = {"redis": "of-redis", "rpc": "of-the-trainer", "http": "of-the-pages"}


@pytest.mark.protections
def test_it_grades_and_holds_no_credential_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLCAST_REDIS_PASSWORD", SECRETS["redis"])
    monkeypatch.setenv("ROLLCAST_RPC_TOKEN", SECRETS["rpc"])
    settings = {
        "run": "local",
        "folder": str(tmp_path),
        "model": {"path": "none"},
        "tasks": {"grading": {"sandbox": "remote"}},
        "grader": {"port": 0, "token": "of-the-grader"},
        "http": {"token": SECRETS["http"]},
    }
    config = resolve_ports(parse_run_config(settings, source="run.yaml"))
    specs = service_specs(
        config, tmp_path / "run.json", embed_redis=False, resume=False, embed_grader=True
    )
    (spec,) = (spec for spec in specs if spec.name == "grader")
    service = Service(spec)
    service.start()
    try:
        client = RemoteSandbox(config.grader_rpc, 60.0, config.tasks.grading, Exporter("local"))
        reference = json.dumps({"kind": "tests", "tests": "assert f(1) == 2"})
        grade = client.grade("code", "```python\ndef f(x): return x + 1\n```", reference)
        assert grade.status == "ok", spec.commands[0].log.read_text()
        client.close()
        held = (config.run_folder / "grader.json").read_text()
        for pid in service.pids:
            held += Path(f"/proc/{pid}/environ").read_text()
        assert "of-the-grader" in held
        assert not [secret for secret in SECRETS.values() if secret in held]
        service.terminate()
        until = time.monotonic() + 30.0
        while service.running and time.monotonic() < until:
            time.sleep(0.05)
        assert service.poll() == 0
    finally:
        service.kill()


def test_without_port_0_the_grader_is_somebody_elses(tmp_path: Path) -> None:
    config = parse_run_config(
        {"run": "local", "folder": str(tmp_path), "model": {"path": "none"}}, source="run.yaml"
    )
    assert resolve_ports(config).grader.port == 7432
    specs = service_specs(config, tmp_path / "run.json", embed_redis=False, resume=False)
    assert "grader" not in {spec.name for spec in specs}
