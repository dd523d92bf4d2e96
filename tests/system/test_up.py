"""`rollcast up` as a user meets it: started, Ctrl-C, continued with the command it prints, a service killed, ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from testkit.system.audit import check_every_task_once, read_lines
from testkit.system.harness import wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(500)]

STEPS, STOP_AT = 24, 12


def test_a_run_is_stopped_by_ctrl_c_and_continued_to_its_end(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings |= {
        "budget": {"steps": STEPS},
        "local": {"generators": 2, "trainer_ranks": 2},
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "forecaster": {"http_port": 0},
    }
    settings["tasks"]["evaluation"]["every_steps"] = 2
    settings["generator"]["drain_seconds"] = 1
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "runs" / settings["run"]

    with rollcast(tmp_path, "up", "--config", "run.yaml") as up:
        wait_for(lambda: goes_on(up, tmp_path) and last_step(folder) >= STOP_AT, 200, "half of the budget")
        assert sorted(services(up)) == ["forecaster", "generator-0", "generator-1", "redis", "trainer 0", "trainer 1"]
        family = psutil.Process(up.pid).children(recursive=True)
        up.send_signal(signal.SIGINT)
        assert up.wait(100) == 130, said(tmp_path)
        assert not [process for process in family if process.is_running()]
    first = said(tmp_path)
    assert "live page: http://127.0.0.1:" in first
    assert "step 0: pass rate" in first
    stopped_at = last_step(folder)
    assert STOP_AT <= stopped_at < STEPS

    *_, command = [line for line in first.splitlines() if line.startswith("stopped; continue with: ")]
    _, *arguments = shlex.split(command.removeprefix("stopped; continue with: "))
    with rollcast(tmp_path, *arguments) as up:
        wait_for(lambda: goes_on(up, tmp_path) and last_step(folder) > stopped_at, 200, "a step after the stop")
        services(up)["generator-1"].kill()
        family = psutil.Process(up.pid).children(recursive=True)
        assert up.wait(200) == 0, said(tmp_path)
        assert not [process for process in family if process.is_running()]

    assert "generator-1 killed by SIGKILL; starting it again" in said(tmp_path)
    assert [line["step"] for line in read_lines(folder / "steps.jsonl")] == list(range(1, STEPS + 1))
    evaluated = [line["step"] for line in read_lines(folder / "evaluations.jsonl")]
    assert evaluated[-1] == STEPS
    check_every_task_once(read_lines(folder / "tasks.jsonl"))
    with closing(sqlite3.connect(folder / "forecasts.sqlite")) as forecasts:
        (seen,) = forecasts.execute("SELECT MAX(step) FROM evaluations").fetchone()
    assert seen == STEPS, "the forecaster saw the last evaluation"
    result = json.loads((folder / "result.json").read_text())
    assert result["num_evaluations"] == len(set(evaluated))
    assert f"the end: pass rate {result['measured']:.3f}" in said(tmp_path)
    if result["frozen"] is not None:  # its moment is a second long here
        assert 0.5 * STEPS <= result["frozen"]["step"] <= 0.6 * STEPS
    assert (folder / "model" / "model.safetensors").exists()


@contextmanager
def rollcast(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command started in `folder`; what it says is appended to `said`. Killed at exit, its services die with it."""
    with (folder / "said").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rollcast.cli.main", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def goes_on(up: subprocess.Popen[bytes], folder: Path) -> bool:
    assert up.poll() is None, said(folder)
    return True


def services(up: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """The command's own children by service; ranks of the trainer by the environment they were given."""
    found = {}
    for process in psutil.Process(up.pid).children():
        arguments = process.cmdline()
        if "--name" in arguments:
            found[arguments[arguments.index("--name") + 1]] = process
        elif "rollcast.trainer" in arguments:
            found[f"trainer {process.environ()['RANK']}"] = process
        elif "rollcast.forecaster" in arguments:
            found["forecaster"] = process
        elif "redis-server" in arguments[0]:
            found["redis"] = process
    return found


def last_step(folder: Path) -> int:
    steps = read_lines(folder / "steps.jsonl")
    return int(steps[-1]["step"]) if steps else 0
