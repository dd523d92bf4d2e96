"""The process: it logs beside a run that goes on, tells how it fares, and ends soon whatever its
destinations do.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rollcast.config.resolved import write_resolved
from rollcast.connections.port_files import port_file, read_port
from rollcast.local.services import service_specs
from rollcast.loggers import service
from tests.loggers.told_run import NUM_RECORDS, run_config, write_run

WAIT_SECONDS = 60.0


def test_local_mode_starts_it_where_something_is_logged_and_stops_it_last(tmp_path: Path) -> None:
    logged = service_specs(
        run_config(tmp_path, {"kind": "tensorboard"}),
        tmp_path / "run.json",
        embed_redis=False,
        resume=False,
    )
    without = service_specs(
        run_config(tmp_path), tmp_path / "run.json", embed_redis=False, resume=False
    )
    assert {spec.name for spec in logged} - {spec.name for spec in without} == {"loggers"}
    [spec] = [spec for spec in logged if spec.name == "loggers"]
    assert all(other.stop_order < spec.stop_order for other in without), (
        "who writes records ends before"
    )
    assert not spec.essential
    assert spec.stop_seconds > service.FINISH_SECONDS


def test_one_that_works_and_one_that_is_away_are_told_apart_and_ended(tmp_path: Path) -> None:
    for name in ("tensorboard", "mlflow"):
        pytest.importorskip(
            name, reason=f"{name} is not installed: pip install -r requirements/loggers.txt"
        )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    nowhere = {"kind": "mlflow", "url": "http://127.0.0.1:9"}
    config = run_config(tmp_path, {"kind": "tensorboard"}, nowhere)
    config = config.model_copy(update={"http": config.http.model_copy(update={"token": None})})
    write_run(config.run_folder)
    run_file = config.run_folder / "run.json"
    write_resolved(config, run_file)
    command = [sys.executable, "-m", "rollcast.loggers", "--config", str(run_file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
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
    assert (
        json.loads((config.run_folder / "logged" / "tensorboard.json").read_text())["lines"][
            "steps.jsonl"
        ]
        == 8
    )


STOPPED = """
import signal, sys, threading, time
from pathlib import Path
from rollcast.config.run import load_run_config
from rollcast.local.services import service_specs
from rollcast.local.supervisor import Supervisor

run_file = Path(sys.argv[1])
specs = service_specs(load_run_config(run_file), run_file, embed_redis=False, resume=False)
loggers = [spec for spec in specs if spec.name == "loggers"]
report = lambda line, trouble=False: print(line, flush=True)
supervisor = Supervisor(loggers, restart_limit=0, interrupt_seconds=3.0, report=report, tick=lambda: None)
print("up", flush=True)
print(supervisor.run(), flush=True)
"""  # noqa: E501


def test_an_interrupt_waits_not_for_a_server_that_takes_and_never_answers(tmp_path: Path) -> None:
    """It has 25 s where the run is finished; what it was not told waits for the resumed run."""
    pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install -r requirements/loggers.txt"
    )
    taken = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = run_config(
            tmp_path, {"kind": "mlflow", "url": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        )
        config = config.model_copy(update={"http": config.http.model_copy(update={"token": None})})
        write_run(config.run_folder)
        run_file = config.run_folder / "run.json"
        write_resolved(config, run_file)

        def take() -> None:
            with suppress(OSError):
                held.append(silent.accept()[0])
                taken.set()

        held: list[socket.socket] = []
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        command = [sys.executable, "-c", STOPPED, str(run_file)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert taken.wait(WAIT_SECONDS), "it asks the server"
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=WAIT_SECONDS)
        for connection in held:
            connection.close()
    assert "loggers was cut short: what is left is told when the run goes on" in said
    assert said.splitlines()[-1] == "interrupted"
    assert not [
        one
        for one in psutil.process_iter(["cmdline"])
        if str(run_file) in (one.info["cmdline"] or [])
    ]
    kept = config.run_folder / "logged" / "mlflow.json"
    assert not kept.exists() or not any(json.loads(kept.read_text())["lines"].values()), (
        "nothing is taken for told"
    )


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
