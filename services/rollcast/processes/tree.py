"""A process and all that it starts end together.

    guard --fork--> a process --> its processes, in any session
      adopts their orphans; the end of that process, SIGTERM or the end of its own parent: kills all

Standard library alone: an adapter loads this file by its path, in the Python of another package.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

_prctl = ctypes.CDLL(None).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
# Runs between fork and the program itself: a preexec_fn would run Python in a fork of a threaded
# process. 1: PR_SET_PDEATHSIG.
_TIE = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)})\n"
    "os.getppid() == int(sys.argv[1]) or os._exit(1)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class _EndedError(BaseException):  # `watch` may catch every Exception
    """The parent, or its end, asked for the end."""


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """The kernel sends this when the thread that started this process ends."""
    _prctl(1, signal_number, 0, 0, 0)  # PR_SET_PDEATHSIG


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """The command of a program that the kernel kills with this process."""
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]


def adopt_orphans() -> bool:
    """Become the parent of all that descendants leave behind; False = the kernel refused."""
    return bool(_prctl(36, 1, 0, 0, 0) == 0)  # PR_SET_CHILD_SUBREAPER


def wait_for(child: int) -> int:
    """The exit code of a child. Orphans that end meanwhile are collected too."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            # A wait without limit would miss a signal that came just before it
            time.sleep(0.1)


def guard(
    run: Callable[[], None],
    parent: int,
    watch: Callable[[int], int] = wait_for,
    clear: Callable[[], None] = lambda: None,
) -> int:
    """Fork `run`, and return its exit code when no process of it is left; negative: the signal that
    ended it, or that asked for the end.

    parent: the process that this one must not outlive; in a container it may be process 1. watch:
    waits for the end of the fork, whose process id it is given, and returns the exit code. clear:
    called when all are killed.
    """

    def end(number: int, frame: object) -> None:
        # A second SIGTERM must not interrupt the killing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _EndedError

    guard_pid = os.getpid()
    signal.signal(signal.SIGTERM, end)
    adopt_orphans()
    # Else a SIGTERM between the fork and the next line would leave the fork.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        die_with_parent()
        if os.getppid() != guard_pid:  # it was gone before the signal was asked for
            os._exit(1)
        run()
        os._exit(0)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before the signal was asked for
            return -signal.SIGTERM
        return watch(pid)
    except _EndedError:
        return -signal.SIGTERM
    finally:
        with suppress(_EndedError):  # one that comes just here
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_descendants()
        clear()


def reap_child() -> int | None:
    """Collect a child that has ended, if there is one."""
    with suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] or None
    return None


def descendants(ancestor: int) -> list[int]:
    """The process ids below a process, as far as they are seen in one look at all processes."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            # It may have ended meanwhile.
            with suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                # After a name that may be anything
                fields = file.read().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    below = children.pop(ancestor, [])
    for pid in below:  # grows meanwhile
        below += children.pop(pid, [])
    return below


def kill_descendants() -> None:
    """Kill all processes below this one, in any session, until none is left.

    There is no deadline: a program that forks without end must not outlive this one.
    """
    while pids := descendants(os.getpid()):
        stop_and_kill(pids)
        while reap_child() is not None:
            pass
        time.sleep(0.01)


def stop_and_kill(pids: Sequence[int]) -> None:
    """Stops all first, so that none starts another while they are killed."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of the leader of a group; kill the group if that takes longer."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        # A process that was killed has ended by then, unless the kernel cannot end it
        process.wait(timeout=10.0)
