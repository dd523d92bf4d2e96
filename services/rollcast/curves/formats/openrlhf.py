"""OpenRLHF's console: `Global step 12: {'policy_loss': 0.1, 'reward': 0.43, ..}` for each step, and
`Evaluation completed in 0:01:20, global_step 12, eval_metrics: {'eval_gsm8k_pass1': 0.4, ..}`.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Row, Sheet

NAME = "console log of OpenRLHF"
_LINE = re.compile(r"\b(?:[Gg]lobal step|global_step) (\d{1,12})(?:, eval_metrics)?: (\{.*)")
_ITEM = re.compile(r"'([^']{1,300})': (?:np\.\w+\(|tensor\()?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\)?(?=[,}])")


def recognises(log: LogFile) -> bool:
    text = log.ended_text
    return "lobal" in text and _LINE.search(text) is not None


def read(log: LogFile) -> Sheet:
    return Sheet.of_rows(NAME, _rows(log.ended_text))


def _rows(text: str) -> list[Row]:
    """One row for each line; its mapping is read as text, never evaluated."""
    return [{"step": int(found[1]), **dict(_ITEM.findall(found[2]))} for found in _LINE.finditer(text)]
