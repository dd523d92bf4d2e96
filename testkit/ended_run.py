"""Records in an ended run's folder: its end, and the forecast that was frozen at half of its
budget.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rollcast.runfolder.files import EVALUATIONS, RESULT, STEPS
from rollcast.runfolder.outcomes import RunResult
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord, read_record
from rollcast.runfolder.survival import surviving


def ended_run_figures(run: Path) -> dict[str, Any] | None:
    """None if no forecast was frozen."""
    result = read_record(run / RESULT, RunResult)
    if result is None or result.frozen is None:
        return None
    points = surviving(RecordFile(run / EVALUATIONS, EvaluationRecord).read())
    steps = list(RecordFile(run / STEPS, StepRecord).read())
    frozen = result.frozen
    gain = result.measured - result.initial
    ages: Counter[int] = Counter()
    for record in steps:
        ages.update(record.staleness_tokens)
    return {
        "initial": result.initial,
        "measured_end": result.measured,
        "evaluations": len(points),
        "frozen_at_step": frozen.step,
        "verdict": frozen.verdict,
        "forecast": frozen.median,
        "interval_90": [frozen.low, frozen.high],
        "error": result.error,
        "last_value_error": result.last_value_error,
        "interval_holds_end": result.inside,
        "gain_share_at_freeze": (frozen.last_value - result.initial) / gain,
        "max_staleness": max(ages),
        "mean_staleness": sum(age * tokens for age, tokens in ages.items()) / sum(ages.values()),
        "curve": [[point.step, round(point.pass_rate, 4)] for point in points],
    }
