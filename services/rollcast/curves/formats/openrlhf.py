"""OpenRLHF's console: `Global step 12: {'policy_loss': 0.1, 'reward': 0.43, ..}` for each step, and
`Evaluation completed in 0:01:20, global_step 12, eval_metrics: {'eval_gsm8k_pass1': 0.4, ..}`.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Sheet

NAME = "console log of OpenRLHF"
_LINE = re.compile(r"\b(?:[Gg]lobal step|global_step) (\d{1,12})(?:, eval_metrics)?: (\{.*)")
_ITEM = re.compile(r"'([^']{1,300})': (?:np\.\w+\(|tensor\()?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\)?(?=[,}])")


def recognises(log: LogFile) -> bool:
    return "lobal" in log.text and _LINE.search(log.text) is not None


def read(log: LogFile) -> Sheet:
    """One row for each line; its mapping is read as text, never evaluated."""
    lines = _LINE.finditer(log.text)
    return Sheet.of_rows(NAME, ({"step": int(line[1]), **dict(_ITEM.findall(line[2]))} for line in lines))
