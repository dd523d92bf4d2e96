"""Ends what a generator leaves of its engine: `python -I -S engine_warden.py FOLDER`, its input a pipe of its maker.

    the pipe ends: the generator closed its engine, or died  ->  kill the engine's processes  ->  remove its folder

vLLM's own processes notice late that their front end is gone: while they start they import for seconds, then wait for
its answer for minutes. So nothing in them is relied upon; once at work they do the same (`end_with_generator`), for the
case that the warden was killed too. They are known by their environment, which every process that comes of the engine
inherits; a fork of the generator shows the generator's, and holds a file of the folder open instead. Standard library
only, and little of it: this process is there as long as the engine.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

FOLDER_VARIABLE = "VLLM_RPC_BASE_PATH"
"""Names an engine's folder in the environment of its processes; vLLM puts its sockets there."""
HELD = "engine"
"""File of the folder that a process has open which is known by that."""
CLEAR_SECONDS = 10.0
"""For processes to die and files to go; only a kernel that is stuck needs more than a moment."""
POLL_SECONDS = 0.05


@contextmanager
def hold(folder: str) -> Iterator[None]:
    """Within it this process, and forks of it, count as the engine's. Raises OSError where the folder is gone."""
    with open(os.path.join(folder, HELD), "ab"):
        yield


def clear(folder: str) -> int:
    """Kill every other process of the engine, remove its files; returns how many processes there were."""
    import shutil

    killed: set[int] = set()
    deadline = time.monotonic() + CLEAR_SECONDS
    while (found := _processes_of(folder)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        time.sleep(POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    return len(killed)


def _processes_of(folder: str) -> list[int]:
    """Those that live, but for this one: what has ended and was not waited for has no environment any more."""
    mark, held = f"{FOLDER_VARIABLE}={folder}".encode(), os.path.join(folder, HELD)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            if _is_marked(f"/proc/{entry}/environ", mark) or _has_open(f"/proc/{entry}/fd", held):
                found.append(int(entry))
        except OSError:
            continue  # it ended, or is another user's
    return found


def _is_marked(environment: str, mark: bytes) -> bool:
    with open(environment, "rb") as file:
        return mark in file.read().split(b"\0")


def _has_open(descriptors: str, path: str) -> bool:
    for number in os.listdir(descriptors):
        try:
            if os.readlink(f"{descriptors}/{number}") == path:
                return True
        except OSError:
            continue  # it was closed meanwhile
    return False


def main(folder: str) -> None:
    while os.read(0, 1):
        pass
    clear(folder)


if __name__ == "__main__":
    main(sys.argv[1])
