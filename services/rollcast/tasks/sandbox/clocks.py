"""How long a process has computed, and how long it was ready to and waited for a core.

The first is a clock of the kernel's that any process may read. The second is `/proc/PID/schedstat`, which a locked-down
process cannot open: the fork server opens it and hands the open file on. gVisor and kernels without scheduler
statistics have no such file; a process there never seems to wait (under gVisor waiting counts as computing).
"""

import contextlib
import os
import time

_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED: of all threads, in nanoseconds (linux/posix-timers.h)."""
_SCHEDSTAT_BYTES = 96


def cpu_seconds(pid: int) -> float:
    """Processor time of a process that lives or was not waited for yet. Raises OSError if there is no such process."""
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)


def open_waits(pid: int) -> int:
    """A descriptor for `waited_seconds`."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def waited_seconds(descriptor: int) -> float:
    """How long that process has waited for a core, up to the last time it got one. 0 if the kernel does not say."""
    try:
        words = os.pread(descriptor, _SCHEDSTAT_BYTES, 0).split()
    except OSError:  # it was waited for
        return 0.0
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0
