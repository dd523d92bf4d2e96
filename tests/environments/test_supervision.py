"""Signals under a Landlock that knows none (before Linux 6.12): the guard lets them reach processes
below it alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollcast.environments.python_processes.folder_calls import folder_filter
from rollcast.environments.python_processes.private_mounts import succeeds_in_fork
from rollcast.environments.python_processes.profiles import _load_asking_filter
from rollcast.environments.python_processes.supervision import CallSupervisor
from rollcast.tasks.sandbox.protections import has_seccomp

WAIT_SECONDS = 60.0
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True)
def asking_filter() -> None:
    """The test is skipped where no filter can ask a supervisor."""
    if not has_seccomp() or not succeeds_in_fork(_load_asking_filter):
        pytest.skip("no filter can ask here")


@pytest.fixture
def victim() -> Iterator[int]:
    """A process that is none of this one's: an earlier test of this process may have made it adopt
    orphans.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    started = subprocess.run(
        ["sh", "-c", "setsid sleep 600 > /dev/null 2>&1 & echo $!"], capture_output=True, check=True
    )
    pid = int(started.stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)


def supervised(run: Callable[[], object], home: Path) -> int:
    """The exit code of a process that runs it under the filter; negative: a signal ended it."""
    own, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.setpgid(0, 0)
            listener = folder_filter(
                has_private_mounts=False, has_signal_scope=False, has_listener=True
            ).load()
            socket.send_fds(theirs, [b"x"], [listener.fileno()])
            listener.close()
            run()
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    theirs.close()
    _, descriptors, _, _ = socket.recv_fds(own, 16, 1)
    own.close()
    supervisor = CallSupervisor(descriptors[0], home, pid)
    deadline = time.monotonic() + WAIT_SECONDS
    ended = 0
    while not ended:
        assert time.monotonic() < deadline
        supervisor.answer_waiting()
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(status)


def own_child(number: int) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(
            number, signal.SIG_DFL
        )  # whatever the process that runs the tests does with it
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    os.kill(pid, number)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number


ALLOWED: dict[str, tuple[Callable[[int], object], int]] = {
    "a child": (lambda victim: own_child(signal.SIGTERM), 0),
    "itself": (lambda victim: os.kill(os.getpid(), signal.SIGUSR1), -signal.SIGUSR1),
    "its group": (lambda victim: os.kill(0, signal.SIGUSR1), -signal.SIGUSR1),
    "its group by number": (
        lambda victim: os.killpg(os.getpgrp(), signal.SIGUSR1),
        -signal.SIGUSR1,
    ),
    "its thread": (lambda victim: signal.raise_signal(signal.SIGUSR1), -signal.SIGUSR1),
}
REFUSED: dict[str, Callable[[int], object]] = {
    "another process": lambda victim: os.kill(victim, signal.SIGKILL),
    "no signal": lambda victim: os.kill(victim, 0),
    "its group": lambda victim: os.killpg(os.getpgid(victim), signal.SIGKILL),
    # Signal 0 is none, and judged as any: if these got through, a test must not end the machine.
    "everything": lambda victim: os.kill(-1, 0),
    "its parent": lambda victim: os.kill(os.getppid(), 0),
    "process 1": lambda victim: os.kill(1, 0),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_process_signals_its_own(what: str, victim: int, tmp_path: Path) -> None:
    run, code = ALLOWED[what]
    assert supervised(lambda: run(victim), tmp_path) == code


@pytest.mark.parametrize("what", REFUSED)
def test_a_process_signals_no_other(what: str, victim: int, tmp_path: Path) -> None:
    assert supervised(lambda: REFUSED[what](victim), tmp_path) == 1
    os.kill(victim, 0)


def test_no_other_process_can_be_opened(victim: int, tmp_path: Path) -> None:
    def run() -> None:
        with pytest.raises(OSError, match="not implemented"):
            os.pidfd_open(victim)

    assert supervised(run, tmp_path) == 0
