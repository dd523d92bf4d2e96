"""What a service said before it ended: the reason in its log, and whether the disk took all that it said."""

import re
import shutil
from pathlib import Path

from rollcast.telemetry.failure_reason import failure_reason

MAX_READ_BYTES = 256 << 10
"""Read from the end of a log: tracebacks of all processes of an engine."""
NO_MESSAGE = "no message"


def last_words(log: Path, start_bytes: int) -> str:
    """The reason that the log names since it had `start_bytes`, else its last line.

    On a full disk the words themselves may be lost, so that this is added.
    """
    text = _read(log, start_bytes)
    lines = text.strip().splitlines()
    words = failure_reason(text) or (lines[-1].strip() if lines else NO_MESSAGE)
    if "space" in words or not _is_full(log.parent):
        return words
    full = f"no space is left on the disk of {log.parent}; free some"
    return full if words == NO_MESSAGE else f"{words} ({full})"


def same_reason(words: str) -> str:
    """The words without what differs from start to start: numbers of processes, addresses, times."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", words)


def _read(log: Path, start_bytes: int) -> str:
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(start_bytes, end - MAX_READ_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free == 0
    except OSError:
        return False
