"""The file of one metric in MLflow's file store: a line `timestamp value step` for each value, in milliseconds.

The file has the name of the metric.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Sheet

NAME = "MLflow metric file"
TIME = "timestamp"
_LINE = re.compile(r"(\d{10,16}) (\S{1,40}) (-?\d{1,15})")


def recognises(log: LogFile) -> bool:
    """Whether every line is a time, a value and a step."""
    # The first line rules out most other formats, which may have a million lines.
    first, _, others = log.ended_text.rstrip("\n").partition("\n")
    return bool(_LINE.fullmatch(first)) and all(_LINE.fullmatch(line) for line in others.splitlines())


def read(log: LogFile) -> Sheet:
    rows = [{"step": step, TIME: at / 1000, log.path.name: value} for at, value, step in values_in(log.ended_text)]
    return Sheet.of_rows(NAME, rows)


def values_in(text: str) -> list[tuple[int, str, int]]:
    """Milliseconds, value and step of each line."""
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return [(int(line[1]), line[2], int(line[3])) for line in found if line]
