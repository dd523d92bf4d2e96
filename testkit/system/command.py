"""The `rollcast` command as a process in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import psutil

from testkit.forked_programs import STARTED, ForkedPrograms
from testkit.system.audit import read_lines


@contextmanager
def rollcast(
    folder: Path,
    *arguments: str,
    programs: ForkedPrograms | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """Started in `folder`; its output is appended to `read_output`. Killed at exit, its services
    die with it.

    programs: the parent of its forks; None = they are started as programs.
    """
    if programs is not None:
        started = {STARTED: str(folder / "started"), **environment}
        process: subprocess.Popen[bytes] = programs.start(
            "rollcast.cli.main", arguments, folder / "said", started, folder=folder
        )
    else:
        with (folder / "said").open("ab") as log:
            # A shell in the background has its children ignore Ctrl-C.
            command = ["env", "--default-signal=INT", sys.executable, "-m", "rollcast.cli.main"]
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
            )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def read_output(folder: Path) -> str:
    return (folder / "said").read_text()


def goes_on(up: subprocess.Popen[bytes], folder: Path) -> bool:
    assert up.poll() is None, read_output(folder)
    return True


def services(up: subprocess.Popen[bytes], folder: Path) -> dict[str, psutil.Process]:
    """The command's own children by service, if it was forked in `folder`."""
    forked = {
        line["pid"]: line for line in map(json.loads, (folder / "started").read_text().splitlines())
    }
    service_processes = {}
    for process in psutil.Process(up.pid).children():
        if (line := forked.get(process.pid)) is None:
            arguments = process.cmdline()
            assert "redis-server" in arguments[0], arguments
            service_processes["redis"] = process
        elif "--name" in line["arguments"]:
            service_processes[line["arguments"][line["arguments"].index("--name") + 1]] = process
        elif "rollcast.trainer" in line["arguments"]:
            service_processes[f"trainer {line['rank']}"] = process
        else:
            assert "rollcast.forecaster" in line["arguments"], line
            service_processes["forecaster"] = process
    return service_processes


def last_step(run_folder: Path) -> int:
    """0 before the first."""
    steps = read_lines(run_folder / "steps.jsonl")
    return int(steps[-1]["step"]) if steps else 0
