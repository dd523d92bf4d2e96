"""The interface of a destination that a run is logged to."""

from collections.abc import Sequence
from typing import Protocol

from rollcast.loggers.entries import Entry


class RefusedError(Exception):
    """The destination will never accept these entries, so they are not sent again."""


class Destination(Protocol):
    """Every exception except `RefusedError` means that the destination does not answer; the call is repeated later.

    `write` may receive the same entries twice: a process that was killed does not know whether the last ones arrived.
    """

    @property
    def run_id(self) -> str | None:
        """The destination's name of the run; None before the first `open`."""

    def open(self) -> None:
        """Create or continue the run. Called once, before the first `write`."""

    def write(self, entries: Sequence[Entry]) -> None: ...

    def close(self) -> None:
        """Finish: this process writes no more entries."""
