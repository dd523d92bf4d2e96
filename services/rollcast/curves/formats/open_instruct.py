"""open-instruct's console: a framed table of metrics for each training step, a group a line.

    | objective  verifiable_correct_rate: 0.43 | scores: 4.31 |
    | other      episode: 512 | training_step: 4 | ..          |

Rich breaks lines at the width of the terminal, also between a name and its value.
`val/` is what it logs of values while it trains; its evaluations stand under `eval`.
"""

from __future__ import annotations

import re
from pathlib import Path

from rollcast.curves.curve_row import Row
from rollcast.curves.left_out import Tell

NAME = "console log of open-instruct"
_BEGIN = re.compile(r"[╭┌].*\bMetrics\b.*[╮┐]")
_END = re.compile(r"[╰└]")
_LINE = re.compile(r"[│|]\s*(.*?)\s*[│|]\s*$")
_GROUP = re.compile(r"^([\w.-]{1,60})\s{2,}(?=\S)")
_ITEM = re.compile(r"([^\s|:]{1,120}): (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?=\s|$)")
_BROKEN = re.compile(r"([^\s|:]{1,120}:)$")
"""The name of a value that stands in the next line."""
_TRAINING_GROUPS = ("val",)


def recognises(text: str) -> bool:
    return "training_step: " in text and _BEGIN.search(text) is not None


def rows(text: str, path: Path, tell: Tell) -> list[Row]:
    """One row for each table."""
    found: list[Row] = []
    row: Row | None = None
    group = unfinished = ""
    for line in text.split("\n"):
        if _BEGIN.search(line):
            row, group, unfinished = {}, "", ""
        elif row is not None and _END.search(line):
            found.append(row)
            row = None
        elif row is not None and (inside := _LINE.search(line)):
            told = inside[1]
            if not unfinished and (named := _GROUP.match(told)):
                group = named[1]
            told = f"{unfinished} {told}"
            unfinished = broken[1] if (broken := _BROKEN.search(told)) else ""
            if group not in _TRAINING_GROUPS:
                prefix = "" if group == "other" else f"{group}/"
                row.update({prefix + name: value for name, value in _ITEM.findall(told)})
    return found
