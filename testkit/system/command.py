"""The `rollcast` command as a process in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from testkit.system.audit import read_lines


@contextmanager
def rollcast(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Started in `folder`; what it says is appended to `said`. Killed at exit, its services die with it."""
    with (folder / "said").open("ab") as log:
        process = subprocess.Popen(
            # A shell in the background has its children ignore Ctrl-C.
            ["env", "--default-signal=INT", sys.executable, "-m", "rollcast.cli.main", *arguments],
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


def last_step(run_folder: Path) -> int:
    """0 before the first."""
    steps = read_lines(run_folder / "steps.jsonl")
    return int(steps[-1]["step"]) if steps else 0
