"""What a run's folder says about the rest of the run: its budget, why it ended early, and the last
advice on it.
"""

import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rollcast.config.run_end import Budget
from rollcast.runfolder.files import FORECASTS_SAID, RUN_FILE, TASKS
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import ForecastRecord, TaskMark, parse
from rollcast.scaling.decisions.advice_answer import AdviceKind, EarlierAdvice

TAIL_BYTES = 1 << 22
"""Bytes at the end of the marks in which an end is looked for: only last evaluations are marked
after it."""


@dataclass(frozen=True)
class RunTerms:
    """Attributes:
    ended: why `stop_when` ended the run; None = it did not.
    last_advice: of the forecaster, after at most as many evaluations as there are now.
    kept: checkpoints that are there; None = not known.
    """

    budget: Budget
    end_reason: str | None
    last_advice: EarlierAdvice | None
    kept_checkpoints: KeptCheckpoints | None


def terms_of_folder(folder: Path, num_evaluations: int) -> RunTerms:
    """`num_evaluations`: of the run's curve. Absent and unreadable files are not known."""
    content = _run_file(folder / RUN_FILE)
    try:
        budget = Budget.model_validate(content["budget"])
    except (ValidationError, KeyError, TypeError):
        budget = Budget()
    trainer = content.get("trainer")
    checkpoints = trainer.get("checkpoints") if isinstance(trainer, dict) else None
    kept_checkpoints = KeptCheckpoints.at(
        folder, checkpoints if isinstance(checkpoints, str) else None
    )
    return RunTerms(
        budget, early_end(folder), _last_advice(folder, num_evaluations), kept_checkpoints
    )


def _run_file(path: Path) -> dict[str, Any]:
    """Empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            # A longer run file is not read: it states no budget
            content: Any = json.loads(file.read(16 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def early_end(folder: Path) -> str | None:
    """Why `stop_when` ended the run, by the newest mark in its folder; None if it did not, or the
    run went on.
    """
    try:
        with (folder / TASKS).open("rb") as file:
            file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
            lines = file.read(TAIL_BYTES).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        # Most marks are of other kinds, and a look at their bytes is faster than parsing them.
        if b'"stopped_early"' not in line and b'"resumed"' not in line:
            continue
        try:
            # The tail may begin within a line, and its last line may be unfinished.
            mark = parse(line, TaskMark)
        except ValueError:
            continue
        return mark.reason if mark.what == "stopped_early" else None
    return None


def _last_advice(folder: Path, num_evaluations: int) -> EarlierAdvice | None:
    records = RecordFile(folder / FORECASTS_SAID, ForecastRecord).read()
    last_records = deque(
        (record for record in records if record.num_evaluations <= num_evaluations), maxlen=1
    )
    # A newer version may have written a kind of advice that this one does not know.
    if (
        not last_records
        or last_records[0].headline is None
        or last_records[0].advice not in list(AdviceKind)
    ):
        return None
    return EarlierAdvice.after(
        last_records[0].advice,
        last_records[0].evaluations,
        num_evaluations - last_records[0].num_evaluations,
    )
