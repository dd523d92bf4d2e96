"""open-instruct's console: a framed table of metrics for each training step, a group a line.

    | objective  verifiable_correct_rate: 0.43 | scores: 4.31 |
    | other      episode: 512 | training_step: 4 | ..          |

Rich breaks lines at the width of the terminal, also between a name and its value.
`val/` are statistics of training; its evaluations are under `eval`.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Row, Sheet

NAME = "console log of open-instruct"
_CORNER = re.compile(r"[╭┌]")
_TITLE = re.compile(r"\bMetrics\b")
_END = re.compile(r"[╰└]")
_SIDE = re.compile(r"[│|]")
_GROUP = re.compile(r"^([\w.-]{1,60})\s{2,}(?=\S)")
_ITEM = re.compile(r"(?<![^\s|:])([^\s|:]{1,120}): (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?=\s|$)")
_BROKEN = re.compile(r"(?<![^\s|:])([^\s|:]{1,120}:)$")
"""The name of a value that is in the next line."""
_TRAINING_GROUPS = ("val",)


def recognises(log: LogFile) -> bool:
    return "training_step: " in log.console and any(map(_begins, log.console.split("\n")))


def read(log: LogFile) -> Sheet:
    """One row for each table."""
    rows: list[Row] = []
    row: Row | None = None
    group = unfinished = ""
    for line in log.console.split("\n"):
        if _begins(line):
            row = {}
            group = unfinished = ""
        # A table without its lower edge is left out: the log may end within it.
        elif row is not None and _END.search(line):
            rows.append(row)
            row = None
        elif row is not None and (table_text := _inside(line)) is not None:
            # The rest of a broken line may look like a group: a value with blanks behind it.
            if not unfinished and (named := _GROUP.match(table_text)):
                group = named[1]
            table_text = f"{unfinished} {table_text}"
            unfinished = broken[1] if (broken := _BROKEN.search(table_text)) else ""
            if group not in _TRAINING_GROUPS:
                # `other` holds the counters, which are looked for by their plain names.
                prefix = "" if group == "other" else f"{group}/"
                row.update({prefix + name: value for name, value in _ITEM.findall(table_text)})
    return Sheet.from_rows(NAME, rows)


def _begins(line: str) -> bool:
    """Whether it is the upper edge of a table of metrics: a corner, the title, a corner."""
    if "Metrics" not in line or (corner := _CORNER.search(line)) is None:
        return False
    title = _TITLE.search(line, corner.end())
    return title is not None and max(line.rfind("╮"), line.rfind("┐")) >= title.end()


def _inside(line: str) -> str | None:
    """The text between the left and the right edge; None if the line has no edges."""
    line = line.rstrip()
    begin = _SIDE.search(line)
    if begin is None or line[-1] not in "│|" or begin.end() == len(line):
        return None
    return line[begin.end() : -1].strip()
