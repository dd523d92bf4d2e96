"""How a child process ended, and how long it computed and waited until then."""

import os
import signal
from dataclasses import dataclass

from rollcast.tasks.sandbox.clocks import open_waits, waited_seconds


@dataclass(frozen=True, slots=True)
class ChildExit:
    code: int
    """The exit code, or minus the number of the signal that ended it."""
    cpu: float
    waited: float


def find_end(pid: int, *, wait: bool = False) -> ChildExit | None:
    """How a child ended; None if it lives, and is not to be waited for."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)) is None:
        return None
    waits = open_waits(pid)
    waited = waited_seconds(waits)
    os.close(waits)
    _, status, used = os.wait4(pid, 0)
    return ChildExit(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, waited)


def kill_child(pid: int) -> ChildExit:
    os.kill(pid, signal.SIGKILL)
    end = find_end(pid, wait=True)
    assert end is not None
    return end
