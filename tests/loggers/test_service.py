"""The process: it logs beside a run that goes on, tells how it fares, and ends soon whatever its destinations do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from rollcast.config.resolved import write_resolved
from rollcast.connections.port_files import port_file, read_port
from rollcast.local.services import service_specs
from rollcast.loggers import service
from tests.loggers.told_run import NUM_RECORDS, run_config, write_run

WAIT_SECONDS = 60.0


def test_local_mode_starts_it_where_something_is_logged_and_stops_it_last(tmp_path: Path) -> None:
    logged = service_specs(
        run_config(tmp_path, {"kind": "tensorboard"}), tmp_path / "run.json", embed_redis=False, resume=False
    )
    without = service_specs(run_config(tmp_path), tmp_path / "run.json", embed_redis=False, resume=False)
    assert {spec.name for spec in logged} - {spec.name for spec in without} == {"loggers"}
    [spec] = [spec for spec in logged if spec.name == "loggers"]
    assert all(other.stop_order < spec.stop_order for other in without), "who writes records ends before"
    assert not spec.essential
    assert spec.stop_seconds > service.FINISH_SECONDS


def test_one_that_works_and_one_that_is_away_are_told_apart_and_ended(tmp_path: Path) -> None:
    for name in ("tensorboard", "mlflow"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -r requirements/loggers.txt")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    nowhere = {"kind": "mlflow", "url": "http://127.0.0.1:9"}
    config = run_config(tmp_path, {"kind": "tensorboard"}, nowhere)
    config = config.model_copy(update={"http": config.http.model_copy(update={"token": None})})
    write_run(config.run_folder)
    run_file = config.run_folder / "run.json"
    write_resolved(config, run_file)
    command = [sys.executable, "-m", "rollcast.loggers", "--config", str(run_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(line in (page := metrics(config.run_folder)) for line in WANTED):
            assert time.monotonic() < deadline, page
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, said
    assert "the run is not wholly logged" in said
    read = EventAccumulator(str(config.run_folder / "tensorboard")).Reload()
    assert len(read.Scalars("train/reward_mean")) == 8
    assert json.loads((config.run_folder / "logged" / "tensorboard.json").read_text())["lines"]["steps.jsonl"] == 8


WANTED = (
    'rollcast_logger_up{logger="tensorboard",run="told"} 1.0',
    f'rollcast_logger_records_total{{logger="tensorboard",run="told"}} {float(NUM_RECORDS)}',
    'rollcast_logger_up{logger="mlflow",run="told"} 0.0',
    f'rollcast_logger_waiting_records{{logger="mlflow",run="told"}} {float(NUM_RECORDS)}',
)


def metrics(folder: Path) -> str:
    try:
        port = read_port(port_file(folder, "loggers"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as reply:
            return str(reply.read().decode())
    except (OSError, ValueError):
        return ""
