"""The forecast's own test: the forecast of the end at half of the budget is kept and compared with
the measured end.

running -> evaluation at half of the budget answered -> frozen_forecast.json
        -> run finished -> result.json
"""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rollcast.local.status import RunStatus
from rollcast.runfolder.files import FROZEN_FORECAST, RESULT
from rollcast.runfolder.outcomes import NUM_END_EVALUATIONS, FrozenForecast, RunResult
from rollcast.runfolder.records import EvaluationRecord, as_json, read_record
from rollcast.runfolder.writing import replace_json

LEAST_EVALUATIONS = 5
"""After the first step, that `fit` asks for as well: below that there is no forecast (verdict
too_few)."""


def has_law(status: RunStatus) -> bool:
    """Whether there is a forecast that was made from evaluations enough for a law."""
    forecast = status.forecast
    return (
        forecast is not None
        and num_after_first_step(status.evaluations[: forecast.num_points]) >= LEAST_EVALUATIONS
    )


def num_after_first_step(evaluations: Sequence[EvaluationRecord]) -> int:
    """The one at step 0 is the start of a curve, not a point of its law."""
    return sum(point.step > 0 for point in evaluations)


def load_frozen(folder: Path) -> FrozenForecast | None:
    """The kept forecast; None if none can be read."""
    try:
        return read_record(folder / FROZEN_FORECAST, FrozenForecast)
    except (OSError, ValueError):
        return None


def freeze(folder: Path, status: RunStatus) -> FrozenForecast | None:
    """Keep the forecast that knows the curve's first half, as soon as there is one, if nothing was
    kept yet.

    Raises UserError if it cannot be written.
    """
    share = status.budget_share
    forecast = status.forecast
    # A forecaster that was away at half of the budget is waited for until this share; later it
    # would be too easy
    freeze_at = 0.5
    if share is None or not freeze_at <= share <= 0.6 or not has_law(status):
        return None
    if forecast is None or forecast.end is None or (folder / FROZEN_FORECAST).exists():
        return None
    knows_half = (status.evaluated_share or 0.0) >= freeze_at and forecast.num_points >= len(
        status.evaluations
    )
    after_the_next_step = share + share / max(status.step, 1)
    # Share of the budget at which the evaluation at its half is waited for no longer
    if not knows_half and after_the_next_step < 0.56:
        return None
    known_evaluations = status.evaluations[: forecast.num_points]
    newest = known_evaluations[-1]
    low, median, high = forecast.end
    frozen = FrozenForecast(
        step=status.step,
        curve_until_step=newest.step,
        compute_device_hours=status.compute_device_hours,
        end_device_hours=forecast.end_device_hours,
        verdict=forecast.verdict,
        low=low,
        median=median,
        high=high,
        last_value=newest.pass_rate,
        num_evaluations=len(known_evaluations),
        at=time.time(),
    )
    replace_json(folder / FROZEN_FORECAST, as_json(frozen))
    return frozen


def conclude(folder: Path, status: RunStatus) -> RunResult | None:
    """Compare the frozen forecast with the measured end and write the result; None without an
    evaluation.

    Raises UserError if it cannot be written.
    """
    if not status.evaluations:
        return None
    rates = [point.pass_rate for point in status.evaluations]
    measured = fmean(rates[-NUM_END_EVALUATIONS:])
    initial = rates[0]
    frozen = load_frozen(folder)
    gain = measured - initial
    result = RunResult(
        initial=initial,
        measured=measured,
        frozen=frozen,
        error=frozen.median - measured if frozen else None,
        last_value_error=frozen.last_value - measured if frozen else None,
        inside=frozen.low <= measured <= frozen.high if frozen else None,
        gain_share_at_freeze=(frozen.last_value - initial) / gain if frozen and gain else None,
        num_evaluations=len(rates),
    )
    replace_json(folder / RESULT, as_json(result))
    return result
