"""A guard leaves no process, in whatever session it is and whoever its parent was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rollcast.processes.tree import descendants, end_group

GUARD = """
import os, pathlib, sys
from rollcast.processes.tree import guard

parent, *command = sys.argv[1:]
clear = pathlib.Path("cleared").touch
code = guard(lambda: os.execv(command[0], command), int(parent), clear=clear)
sys.exit(code if code >= 0 else 128 - code)
"""
LEAVES_ORPHANS = """
import os, subprocess, sys, time

for _ in range(3):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("there", "w").close()
        time.sleep(600)
    os._exit(0)
while not os.path.exists("there"):
    time.sleep(0.01)
if sys.argv[1] == "stays":
    time.sleep(600)
sys.exit(3)
"""


def start_guard(folder: Path, parent: int, mode: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", LEAVES_ORPHANS, mode]
    return subprocess.Popen([sys.executable, "-c", GUARD, str(parent), *command], cwd=folder)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def living(folder: Path) -> list[int]:
    """Processes that work in the folder, as all do that are started here."""
    pids = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                pids.append(process.pid)
        except psutil.Error:
            continue
    return pids


def test_orphans_end_with_the_program_that_left_them(tmp_path: Path) -> None:
    guard = start_guard(tmp_path, os.getpid(), "ends")
    assert guard.wait(60) == 3
    assert (tmp_path / "cleared").exists()
    assert living(tmp_path) == []


def test_a_guard_that_is_asked_ends_all(tmp_path: Path) -> None:
    guard = start_guard(tmp_path, os.getpid(), "stays")
    wait_until(lambda: (tmp_path / "there").exists() and len(living(tmp_path)) == 6)
    assert set(living(tmp_path)) <= {guard.pid, *descendants(guard.pid)}
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "cleared").exists()
    assert living(tmp_path) == []


DEAF_GUARD = (
    GUARD.replace(
        "clear=clear)",
        "watch=watch, clear=clear)",
    )
    .replace(
        "parent, *command",
        """
def watch(child):
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue

parent, *command""",
        1,
    )
    .replace("import os, pathlib, sys", "import os, pathlib, sys, time")
)
"""What it watches catches every Exception, as the answer to a hostile call may."""


def test_a_guard_ends_all_though_its_watch_catches_every_exception(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES_ORPHANS, "stays"]
    guard = subprocess.Popen(
        [sys.executable, "-c", DEAF_GUARD, str(os.getpid()), *command], cwd=tmp_path
    )
    wait_until(lambda: (tmp_path / "there").exists())
    guard.send_signal(signal.SIGTERM)
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "cleared").exists()
    assert living(tmp_path) == []


def test_a_guard_whose_parent_has_gone_ends_all_at_its_start(tmp_path: Path) -> None:
    guard = start_guard(tmp_path, os.getpid() + 1, "stays")
    assert guard.wait(60) == 128 + signal.SIGTERM
    assert living(tmp_path) == []


@pytest.mark.parametrize(
    ("program", "seconds", "code"),
    [("exit 4", 60.0, 4), ("sleep 600 & sleep 600; true", 0.2, -signal.SIGKILL)],
)
def test_a_group_is_killed_if_its_leader_does_not_end(
    program: str, seconds: float, code: int, tmp_path: Path
) -> None:
    leader = subprocess.Popen(["/bin/sh", "-c", program], start_new_session=True, cwd=tmp_path)
    end_group(leader, seconds)
    assert leader.returncode == code
    wait_until(lambda: living(tmp_path) == [])
