"""Processes that live and die together, and never outlive their supervisor.

    start -> running -> (all end with 0, or one fails and the rest is killed) -> ended -> start ...
                     -> terminate (SIGTERM) -> deadline -> kill (SIGKILL) -> ended

Every process is its own session, so that Ctrl-C at the terminal reaches the supervisor alone, which
stops its services in the right order. The kernel kills them if the supervisor is killed. What a
dead process leaves behind (an engine without its front end) becomes the supervisor's child and is
killed as well.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rollcast.config.access_modes import FOLDER_MODE, open_for_group
from rollcast.config.errors import EXIT_USER_ERROR
from rollcast.processes.tree import adopt_orphans, descendants, dying_with_parent, stop_and_kill
from rollcast.telemetry.failure_reason import failure_reason

NO_MESSAGE = "no message"
ORPHAN_SECONDS = 3.0
"""Helpers such as multiprocessing's resource tracker tidy up and end by themselves within this
time."""


@dataclass(frozen=True, slots=True)
class Command:
    arguments: tuple[str, ...]
    log: Path
    environment: Callable[[], Mapping[str, str]] = dict
    """Added to the supervisor's own, asked at every start."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """The processes started under one name."""

    name: str
    commands: tuple[Command, ...]
    """One for each process; the first one's end is the service's."""
    stop_order: int
    """Services of a lower number are stopped, and waited for, first."""
    stop_seconds: float
    """Time from SIGTERM to SIGKILL."""
    essential: bool = True
    """Whether the run is given up when it cannot be kept alive."""
    unhurried: bool = False
    """Whether it has all of `stop_seconds` when the run is finished, too."""
    saves: bool = False
    """Whether work is lost if it is killed before `stop_seconds` are over: an interrupt does not
    cut it short."""
    when_cut: str = ""
    """The fate of its unfinished work when an interrupt cut it short."""
    restart_arguments: tuple[str, ...] = ()
    """Added when it is started again."""
    ready_file: Path | None = None
    """Written by it when it serves: one that ends before has failed to start. None = it is not
    seen."""


class Service:
    """The processes of one spec."""

    def __init__(self, spec: ServiceSpec) -> None:
        self.spec = spec
        self.starts = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log_starts: list[int] = [0] * len(spec.commands)
        self._started_at = 0.0
        self._first_ended_at: float | None = None
        self._failed_index = 0

    @property
    def pids(self) -> list[int]:
        """The ids of processes that have not ended."""
        return [process.pid for process in self._processes if process.poll() is None]

    @property
    def running(self) -> bool:
        return bool(self.pids)

    def start(self) -> None:
        assert not self.running
        extra = self.spec.restart_arguments if self.starts else ()
        self.starts += 1
        self._first_ended_at = None
        self._failed_index = 0
        self._started_at = time.time()
        started = [_start(command, extra) for command in self.spec.commands]
        self._processes = [process for process, _ in started]
        self._log_starts = [start_bytes for _, start_bytes in started]

    def poll(self) -> int | None:
        """The exit code once the service has ended (negative = the signal that ended it), None
        while it runs.
        """
        if not self._processes:
            return None
        codes = [process.poll() for process in self._processes]
        if any(codes) or codes[0] is not None:
            self._first_ended_at = self._first_ended_at or time.monotonic()
        some_run = any(code is None for code in codes)
        waited = time.monotonic() - (self._first_ended_at or time.monotonic())
        if failed_indices := [index for index, code in enumerate(codes) if code]:
            # The others may have ended because of the process that reports a mistake of the user.
            # After a process failed, the others have this long to report a mistake of the user
            if some_run and EXIT_USER_ERROR not in codes and waited < 5.0:
                return None
            self._failed_index = max(
                failed_indices, key=lambda index: codes[index] == EXIT_USER_ERROR
            )
            self.kill()
            return codes[self._failed_index]
        if codes[0] is None:
            return None
        if some_run:
            # After process 0 of a service ended well, the others have this long to follow
            if waited < 30.0:
                return None
            self.kill()
        return 0

    def terminate(self) -> None:
        for process in self._processes:
            process.terminate()

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            # A process that was killed has ended by then, unless the kernel cannot end it
            process.wait(timeout=30.0)

    @property
    def log(self) -> Path:
        """Log of the process that failed, or of the first one if none did."""
        return self.spec.commands[self._failed_index].log

    def last_words(self) -> str:
        """Why that process ended, by what its log says since the newest start."""
        return last_words(self.log, self._log_starts[self._failed_index])

    @property
    def was_ready(self) -> bool:
        """Whether the newest start came as far as to serve; False if the spec does not say how that
        is seen.
        """
        ready = self.spec.ready_file
        try:
            return ready is not None and ready.stat().st_mtime >= self._started_at
        except OSError:
            return False


def _start(command: Command, extra: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and how many bytes its log had before."""
    command.log.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    # A log that is larger is moved aside at the next start
    if command.log.exists() and command.log.stat().st_size > (64 << 20):
        command.log.replace(command.log.with_suffix(".old"))
    with open(command.log, "ab", opener=open_for_group) as log:
        start_bytes = log.tell()
        process = subprocess.Popen(  # noqa: S603  # our own services
            dying_with_parent([*command.arguments, *extra]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.environment()},
            start_new_session=True,
        )
    return process, start_bytes


class Orphans:
    """Descendants whose parent died: found because the kernel makes them our children."""

    def __init__(self) -> None:
        if not adopt_orphans():
            raise OSError("the kernel refused PR_SET_CHILD_SUBREAPER")
        self._own_pids = {child.pid for child in psutil.Process().children()}
        self._seen_at: dict[int, float] = {}

    def sweep(self, known_pids: set[int], *, grace_seconds: float = ORPHAN_SECONDS) -> None:
        """Kill, with all below them, the children that are not `known_pids` and had their grace."""
        now_seconds = time.monotonic()
        strangers = [
            child
            for child in psutil.Process().children()
            if child.pid not in known_pids | self._own_pids
        ]
        self._seen_at = {
            child.pid: self._seen_at.get(child.pid, now_seconds) for child in strangers
        }
        for child in strangers:
            if now_seconds - self._seen_at[child.pid] < grace_seconds:
                continue
            stop_and_kill([*descendants(child.pid), child.pid])
            with suppress(psutil.TimeoutExpired):
                # How long the end of a killed process is waited for
                child.wait(5.0)


def last_words(log: Path, start_bytes: int) -> str:
    """The reason that the log names since it had `start_bytes`, else its last line.

    On a full disk the words themselves may be lost, so that this is added.
    """
    text = ""
    with suppress(OSError), log.open("rb") as file:
        # Read from the end of a log: tracebacks of all processes of an engine
        file.seek(max(start_bytes, file.seek(0, os.SEEK_END) - (256 << 10)))
        text = file.read().decode(errors="replace")
    lines = text.strip().splitlines()
    words = failure_reason(text) or (lines[-1].strip() if lines else NO_MESSAGE)
    if "space" in words or not _is_full(log.parent):
        return words
    full = f"no space is left on the disk of {log.parent}; free some"
    return full if words == NO_MESSAGE else f"{words} ({full})"


def same_reason(words: str) -> str:
    """The words without what differs from start to start: numbers of processes,
    addresses, times.
    """
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", words)


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free == 0
    except OSError:
        return False
