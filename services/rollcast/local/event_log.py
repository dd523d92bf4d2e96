"""The log of a run's events in its folder, for those who look later."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollcast.config.access_modes import FOLDER_MODE, open_for_group
from rollcast.runfolder.files import RUN_LOG

TAIL_BYTES = 64 << 10
"""Read from the end of the log: far more than a terminal shows."""
_TROUBLE = "!"
_NEWS = "-"
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class RunEvent:
    at: str
    """Local time, HH:MM:SS."""
    line: str
    trouble: bool = False
    """Something went wrong."""


def note(folder: Path, line: str, *, trouble: bool = False) -> RunEvent:
    """The event of now, appended to the log; a disk that takes no more costs the log alone."""
    local_time = time.localtime()
    text = one_line(line)
    with suppress(OSError):
        (folder / RUN_LOG).parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        with open(folder / RUN_LOG, "a", opener=open_for_group) as log:
            log.write(
                f"{time.strftime(_TIME, local_time)} {_TROUBLE if trouble else _NEWS} {text}\n"
            )
    return RunEvent(time.strftime("%H:%M:%S", local_time), text, trouble)


def read_events(folder: Path) -> list[RunEvent]:
    """The last events of the log, in order; empty if there is no log.

    Malformed lines are skipped.
    """
    try:
        with (folder / RUN_LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = log.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    parts = [line.split(" ", 3) for line in lines]
    return [
        RunEvent(line_fields[1], line_fields[3], line_fields[2] == _TROUBLE)
        for line_fields in parts
        if len(line_fields) == 4 and line_fields[2] in (_TROUBLE, _NEWS)
    ]


def one_line(text: str) -> str:
    """Texts of models, and exceptions that repeat them, could move the cursor or hide earlier
    output.
    """
    return " ".join(text.split()).translate(_CONTROLS)


def short_line(text: str, max_characters: int) -> str:
    """Longest text; a longer one ends in dots."""
    line = one_line(text)
    return line if len(line) <= max_characters else f"{line[:max_characters]}..."
