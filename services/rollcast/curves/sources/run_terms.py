"""What a run's folder says about the rest of the run: its budget, why it ended early, and the last
advice on it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rollcast.config.run_end import Budget
from rollcast.runfolder.files import FORECASTS_SAID, RUN_FILE, TASKS
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.runfolder.record_file import RecordFile, newest_lines
from rollcast.runfolder.records import ForecastRecord, TaskMark, parse
from rollcast.scaling.decisions.advice_answer import AdviceKind, EarlierAdvice

if TYPE_CHECKING:  # it imports scipy, which `up` need not
    from rollcast.curves.evaluations import RunHistory

TAIL_BYTES = 1 << 22
"""Bytes at the end of the marks in which an end is looked for: only last evaluations are marked
after it."""


def with_terms(history: RunHistory, folder: Path) -> RunHistory:
    """The history with what the folder of its run says; absent and unreadable files say nothing."""
    content = _run_file(folder / RUN_FILE)
    try:
        budget = Budget.model_validate(content["budget"])
    except (ValidationError, KeyError, TypeError):
        budget = Budget()
    trainer = content.get("trainer")
    checkpoints = trainer.get("checkpoints") if isinstance(trainer, dict) else None
    location = checkpoints if isinstance(checkpoints, str) else None
    return replace(
        history,
        budget_steps=budget.steps,
        budget_device_hours=budget.device_hours,
        end_reason=early_end(folder),
        last_advice=_last_advice(folder, len(history.evaluations)),
        kept_checkpoints=KeptCheckpoints.find(folder, location),
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
    for line in newest_lines(folder / TASKS, TAIL_BYTES):
        # Most marks are of other kinds, and a look at their bytes is faster than parsing them.
        if b'"stopped_early"' not in line and b'"resumed"' not in line:
            continue
        try:
            mark = parse(line, TaskMark)
        except ValueError:
            continue
        return mark.reason if mark.what == "stopped_early" else None
    return None


def _last_advice(folder: Path, num_evaluations: int) -> EarlierAdvice | None:
    """The forecaster's newest advice after at most as many evaluations as there are now."""
    newest = None
    for record in RecordFile(folder / FORECASTS_SAID, ForecastRecord).read():
        if record.num_evaluations <= num_evaluations:
            newest = record
    # A newer version may have written a kind of advice that this one does not know.
    if newest is None or newest.headline is None or newest.advice not in list(AdviceKind):
        return None
    evaluations_since = num_evaluations - newest.num_evaluations
    return EarlierAdvice.after(newest.advice, newest.evaluations, evaluations_since)
