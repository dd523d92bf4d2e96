"""A thread of the recorder, and an end that waits for it until a deadline alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Literal

MemoryKind = Literal["steps", "weights"]
"""Kinds of memory that wait for the disk."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    name: str
    """The record that it writes, such as `step-12`; empty = it writes none."""
    action: Callable[[], object]
    """Raises nothing."""
    num_bytes: int
    """Memory that it holds until it is done."""
    kind: MemoryKind = "steps"


class JobThread:
    """Does jobs one after the other. Any thread may call the methods.

    It is a daemon: the interpreter joins every other thread at its end, those of executors too, and
    a write to a disk that hangs never returns.
    """

    def __init__(self, name: str) -> None:
        self._jobs: deque[Job] = deque()
        """The first is under way."""
        self._changed = Condition()
        self._is_closed = False
        Thread(target=self._run, name=name, daemon=True).start()

    def has_room(self, kind: MemoryKind, num_bytes: int) -> bool:
        """Whether a job with this memory may wait too; one of each kind always may."""
        with self._changed:
            waiting = sum(job.num_bytes for job in self._jobs if job.kind == kind)
        return not waiting or waiting + num_bytes <= 1 << 30

    def submit(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    def close(self, seconds: float) -> list[Job]:
        """Wait for the jobs, for `seconds` at most; returns those that are not done by then."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs, timeout=seconds)
            unfinished = list(self._jobs)
            self._jobs.clear()
            self._is_closed = True
            self._changed.notify_all()
        return unfinished

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._is_closed)
                if self._is_closed:
                    return
                job = self._jobs[0]
            job.action()
            with self._changed:
                if self._jobs:  # not closed meanwhile
                    self._jobs.popleft()
                self._changed.notify_all()
