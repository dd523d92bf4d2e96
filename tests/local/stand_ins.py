"""A supervisor of stand-in scripts, which are real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

STAND_INS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from rollcast.config.errors import UserError
from rollcast.local.process import Command, ServiceSpec
from rollcast.local import supervisor as supervision
from rollcast.local.supervisor import ServiceLostError, Supervisor

supervision.MAX_BACKOFF_SECONDS = 0.5  # of a run 30: the tests count starts and time none of them
folder = Path(sys.argv[1])

HEAD = "import os, signal, subprocess, sys, time; open(r'{}', 'a').write(f'{{os.getpid()}}\\\\n'); "

def spec(name, program, stop_order=0, stop_seconds=5.0, count=1, **more):
    head = HEAD.format(folder / f"{name}.pids")
    command = Command((sys.executable, "-c", head + program), folder / f"{name}.log")
    return ServiceSpec(name, (command,) * count, stop_order=stop_order, stop_seconds=stop_seconds, **more)

SLEEP = "time.sleep(600)"
NOTE = (
    "signal.signal(signal.SIGTERM, lambda *_: (open(r'%s', 'a').write('{0}\\\\n'), sys.exit(0)));"
    "time.sleep(600)" % (folder / "order")
)
"""  # noqa: E501


def run_supervisor(
    folder: Path,
    specs: str,
    *,
    limit: int = 3,
    interrupt_seconds: float = 100.0,
    tick: str = "lambda: None",
    more: str = "",
    prefix: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """A supervisor in a process of its own; it prints its ending, or the error's type and text."""
    program = STAND_INS + (
        "report = lambda line, trouble=False: print('report:', line, flush=True)\n"
        f"supervisor = Supervisor({specs}, restart_limit={limit}, "
        f"interrupt_seconds={interrupt_seconds}, report=report,"
        f" tick={tick}, {more})\n"
        "print('up', flush=True)\n"
        "try:\n    print('ending:', supervisor.run(), flush=True)\n"
        "except (UserError, ServiceLostError, OSError) as error:\n    print(type(error).__name__, "
        "error, vars(error), flush=True)\n"
    )
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pids(folder: Path, name: str) -> list[int]:
    path = folder / f"{name}.pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_all_gone(folder: Path) -> None:
    for path in folder.glob("*.pids"):
        pids = [int(line) for line in path.read_text().splitlines()]
        for pid in pids:
            wait_for(partial(gone, pid))
