"""NeMo-RL's console: under `==== Step 12/1000 ====` the results of a step, `Avg Reward: 0.43`, and
those of its validation if there was one, `Accuracy: 0.41`. A validation before the first step is of
step 0.
"""

import re

from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Row, Sheet

NAME = "console log of NeMo-RL"
_STEP = re.compile(r"(?<!=)={5,} Step (\d{1,12})/\d+ =====+")
_RESULTS = re.compile(r"\b(Training|Validation) Results:")
_ITEM = re.compile(r"•\s*([A-Z][\w ]{0,60}): (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_PREFIX = {"Training": "train/", "Validation": "validation/"}


def recognises(log: LogFile) -> bool:
    return (
        "Results:" in log.console
        and bool(_RESULTS.search(log.console))
        and bool(_STEP.search(log.console))
    )


def read(log: LogFile) -> Sheet:
    """One row for each block of results."""
    rows: list[Row] = []
    step = 0
    row: Row | None = None
    prefix = ""
    for line in log.console.split("\n"):
        if began := _STEP.search(line):
            step = int(began[1])
            row = None
        # The training and the validation of one step have a block each.
        elif block := _RESULTS.search(line):
            prefix = _PREFIX[block[1]]
            row = {"step": step}
            rows.append(row)
        elif row is not None:
            for name, value in _ITEM.findall(line):
                row.setdefault(prefix + name.strip().lower().replace(" ", "_"), value)
    return Sheet.from_rows(NAME, rows)
