"""The events of a run, in one file of its folder: `up`, the trainer and operators write it, `show`
and the live page read it.
"""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.printable import one_line
from rollcast.runfolder.files import EVENTS
from rollcast.runfolder.record_file import newest_lines
from rollcast.runfolder.records import STRICT, parse
from rollcast.runfolder.writing import append_line


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A line of events.jsonl."""

    __pydantic_config__ = STRICT

    at: float
    """Unix seconds."""
    line: str
    trouble: bool = False
    """Something went wrong."""

    @property
    def local_time(self) -> str:
        try:
            return time.strftime("%H:%M:%S", time.localtime(self.at))
        except (ValueError, OverflowError, OSError):  # a damaged line
            return "?"


def note(folder: Path, line: str, *, trouble: bool = False) -> RunEvent:
    """The event of now, appended to the log; a disk that takes no more costs the log alone."""
    event = RunEvent(time.time(), one_line(line), trouble)
    with suppress(UserError):
        append_line(folder / EVENTS, asdict(event))
    return event


def read_events(folder: Path) -> list[RunEvent]:
    """The last events of the log, in order; empty if there is no log.

    Malformed lines are skipped.
    """
    events = []
    # Bytes at the end of the log: far more than a terminal shows
    for line in newest_lines(folder / EVENTS, 64 << 10):
        with suppress(ValueError):
            events.append(parse(line, RunEvent))
    return events[::-1]
