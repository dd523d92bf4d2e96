"""The log of a run's events in its folder, for those who look later."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollcast.local.one_line import one_line
from rollcast.runfolder.files import RUN_LOG

TAIL_BYTES = 64 << 10
"""Read from the end of the log: far more than a terminal shows."""
_TROUBLE = "!"
_NEWS = "-"
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened."""

    at: str
    """Local time, HH:MM:SS."""
    line: str
    trouble: bool = False
    """Something went wrong."""


def note(folder: Path, line: str, *, trouble: bool = False) -> RunEvent:
    """The event of now, appended to the log; a disk that takes no more costs the log alone."""
    now = time.localtime()
    text = one_line(line)
    with suppress(OSError):
        (folder / RUN_LOG).parent.mkdir(parents=True, exist_ok=True)
        with (folder / RUN_LOG).open("a") as log:
            log.write(f"{time.strftime(_TIME, now)} {_TROUBLE if trouble else _NEWS} {text}\n")
    return RunEvent(time.strftime("%H:%M:%S", now), text, trouble)


def events_of(folder: Path) -> list[RunEvent]:
    """The last events of the log, in order; empty if there is no log. Malformed lines are skipped."""
    try:
        with (folder / RUN_LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    parts = [line.split(" ", 3) for line in lines]
    return [
        RunEvent(part[1], part[3], part[2] == _TROUBLE)
        for part in parts
        if len(part) == 4 and part[2] in (_TROUBLE, _NEWS)
    ]
