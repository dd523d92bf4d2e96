"""Ends a generator's engine with the generator: `python -I -S engine_warden.py FOLDER`, with a pipe
as its input.

    the pipe ends: the generator closed its engine, or died
        -> kill the engine's processes -> remove its folder

vLLM's own processes notice late that their front end has ended: they import for seconds while they
start, then wait for its answer for minutes. So the warden does not rely on them. Once they are at
work they clear up too (`end_with_generator`), in case the warden was killed. They are recognised by
their environment, which every process of the engine inherits; a fork of the generator shows the
generator's environment, so it keeps a file of the folder open instead. Uses little of the standard
library, because this process lives as long as the engine.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

FOLDER_VARIABLE = "VLLM_RPC_BASE_PATH"
"""Variable with an engine's folder in the environment of its processes; vLLM puts its sockets
there."""
HELD = "engine"
"""File of the folder that the fork keeps open, by which it is recognised."""
CLEAR_SECONDS = 10.0
"""Deadline for killing processes and removing files. Usually milliseconds; a stuck kernel takes
longer."""


@contextmanager
def hold(folder: str) -> Iterator[None]:
    """Let this process and its forks count as the engine's.

    Raises OSError if the folder does not exist.
    """
    with open(os.path.join(folder, HELD), "ab"):
        yield


def clear(folder: str) -> int:
    """Kill every other process of the engine, remove its files; returns how many processes there
    were.
    """
    import shutil

    killed: set[int] = set()
    deadline = time.monotonic() + CLEAR_SECONDS
    while (living_pids := _list_processes(folder)) and time.monotonic() < deadline:
        for pid in living_pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        # The kernel takes a moment to end a killed process, and new ones may have appeared.
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    return len(killed)


def _list_processes(folder: str) -> list[int]:
    """Ids of living processes except this one.

    A zombie does not count: its environment is empty.
    """
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    held_path = os.path.join(folder, HELD)
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            if _is_marked(f"/proc/{entry}/environ", mark) or _has_open(
                f"/proc/{entry}/fd", held_path
            ):
                pids.append(int(entry))
        except OSError:
            continue  # it ended, or is another user's
    return pids


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
