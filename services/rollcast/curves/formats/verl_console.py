"""verl's console: `step:12 - val-core/openai/gsm8k/reward/mean@1:0.53 - critic/score/mean:0.41 - ..`.

Ray puts `(TaskRunner pid=123) ` before it, progress bars and other processes write between the lines, and numpy's
numbers may stand as np.float64(0.53).
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Sheet

NAME = "console log of verl"
_LINE = re.compile(r"\bstep:(\d{1,12}) - (\S+:.*)")
_ITEM = re.compile(r"(?:^| - )(\S{1,300}?):(?:np\.\w+\()?(-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan))\)?(?= - |\s|$)")
MARK = "step:"
_MIN_METRICS = 2
"""Metrics in a line, so that a sentence is not taken for one."""


def recognises(log: LogFile) -> bool:
    if MARK not in log.text:
        return False
    lines = _LINE.finditer(log.text[: 1 << 20])
    return any(len(_ITEM.findall(line[2])) >= _MIN_METRICS for line in lines) or bool(_LINE.search(log.text, 1 << 20))


def read(log: LogFile) -> Sheet:
    """One row for each line of metrics; lines of others are no rows of it."""
    lines = _LINE.finditer(log.text)
    return Sheet.of_rows(NAME, ({"step": int(line[1]), **dict(_ITEM.findall(line[2]))} for line in lines))
