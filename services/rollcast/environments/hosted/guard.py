"""The parent of an environment that may start processes: they all end with it.

guard --fork--> environment --> its processes, in any session
  adopts their orphans; SIGTERM, the end of the nursery or of the environment: kills all of them
  too many of them, too much memory or too much written: kills all of them, and says so on the connection
"""

import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from rollcast.environments.hosted.frames import packed
from rollcast.tasks.sandbox.lockdown import adopt_orphans, die_with_parent

LOOK_SECONDS = 0.1
"""Between two looks at the processes."""
MAX_PROCESSES = 64
"""One environment may have this many at the same time: a shell with a build of some jobs has a dozen."""
MAX_RESIDENT_BYTES = 2 << 30
"""All processes of one environment together may use this much."""
MAX_FOLDER_BYTES = 1 << 30
"""All files of one environment together may take this much."""
LOOKS_PER_FOLDER_SIZE = 10
"""The folder's size is asked for less often, because that reads all of it."""


class _EndedError(Exception):
    """The nursery, or its end, asked for the end."""


def guard(run: Callable[[], None], connection: socket.socket | None, folder: Path | None, parent: int) -> int:
    """Fork `run`, and return its exit code when no process of it is left; negative: the signal that ended it.

    connection: is given the reason if it was too much. None = it cannot be too much.
    folder: the private one, whose size is bounded. None = the profile is trusted.
    parent: the process that it must not outlive; in a container it may be process 1.
    """

    def end(number: int, frame: object) -> None:
        raise _EndedError

    signal.signal(signal.SIGTERM, end)
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent()
        run()
        os._exit(0)
    try:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before the signal was asked for
            return -signal.SIGTERM
        code, why = _watch(pid, folder)
        if why and connection is not None:
            with contextlib.suppress(OSError):
                connection.sendall(packed({"ended": why}))
        return code
    except _EndedError:
        return -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _kill_all()


def _watch(environment: int, folder: Path | None) -> tuple[int, str]:
    """Wait for the environment's end: its exit code, and a sentence if it was too much."""
    looks = 0
    while True:
        while (ended := _reaped()) is not None:
            pid, code = ended
            if pid == environment:
                return code, ""
        looks += 1
        if folder is not None and (why := _too_much(folder, looks)):
            return -signal.SIGKILL, why
        time.sleep(LOOK_SECONDS)


def _reaped() -> tuple[int, int] | None:
    """A child that has ended, and its exit code."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _too_much(folder: Path, looks: int) -> str:
    processes = list(_descendants())
    if len(processes) > MAX_PROCESSES:
        return f"it had {len(processes)} processes, and {MAX_PROCESSES} are allowed"
    resident = sum(map(_resident_bytes, processes))
    if resident > MAX_RESIDENT_BYTES:
        return f"its processes took {resident >> 20} MiB, and {MAX_RESIDENT_BYTES >> 20} are allowed"
    if looks % LOOKS_PER_FOLDER_SIZE == 0 and (written := _size(folder)) > MAX_FOLDER_BYTES:
        return f"it wrote {written >> 20} MiB, and {MAX_FOLDER_BYTES >> 20} are allowed"
    return ""


def _descendants() -> Iterator[int]:
    """Reads this tree alone. psutil reads every process of the machine, and a hundred guards would take whole cores."""
    parents = [os.getpid()]
    while parents:
        tasks = Path(f"/proc/{parents.pop()}/task")
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for thread in os.listdir(tasks):
                children = [int(pid) for pid in (tasks / thread / "children").read_text().split()]
                parents += children
                yield from children


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _size(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


def _kill_all() -> None:
    """Stop all first, so that none starts another while they are killed."""
    while processes := psutil.Process().children(recursive=True):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    process.send_signal(number)
        while _reaped() is not None:
            pass
        time.sleep(0.01)
