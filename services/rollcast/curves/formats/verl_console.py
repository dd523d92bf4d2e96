"""verl's console: `step:12 - val-core/openai/gsm8k/reward/mean@1:0.53 - critic/score/mean:0.41 - ..`.

Ray puts `(TaskRunner pid=123) ` before it, progress bars and other processes write between the lines, and numpy's
numbers may stand as np.float64(0.53).
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Row, Sheet

NAME = "console log of verl"
_LINE = re.compile(r"\bstep:(\d{1,12}) - (\S+:.*)")
_ITEM = re.compile(r"(?:^| - )(\S{1,300}?):(?:np\.\w+\()?(-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan))\)?(?= - |\s|$)")
MARK = "step:"
_MIN_METRICS = 2
"""Metrics in a line, so that a sentence is not taken for one."""


def recognises(log: LogFile) -> bool:
    text = log.ended_text
    if MARK not in text:
        return False
    return any(len(_ITEM.findall(found[2])) >= _MIN_METRICS for found in _LINE.finditer(text[: 1 << 20])) or bool(
        _LINE.search(text, 1 << 20)
    )


def read(log: LogFile) -> Sheet:
    return Sheet.of_rows(NAME, _rows(log.ended_text))


def _rows(text: str) -> list[Row]:
    """One row for each line of metrics; lines of others are no rows of it."""
    return [{"step": int(found[1]), **dict(_ITEM.findall(found[2]))} for found in _LINE.finditer(text)]
