"""Where a run is logged to: what every kind of destination offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rollcast.loggers.entries import Entry


class RefusedError(Exception):
    """The destination will never take these entries; to send them again is of no use."""


class Destination(Protocol):
    """Any other exception than `RefusedError` means that it is away, and the call is made again later.

    Each may be told the same entries twice: a process that was killed does not know whether the last ones arrived.
    """

    @property
    def run_id(self) -> str | None:
        """Under which it knows the run, once it does."""

    def open(self) -> None:
        """Take the run up; once, before the first `write`."""

    def write(self, entries: Sequence[Entry]) -> None: ...

    def close(self) -> None:
        """Nothing more comes from this process."""
