"""The forecast's own test: what it says of the end at half of the budget, kept and held against what came.

running -> evaluation at half of the budget answered -> frozen_forecast.json -> run finished -> result.json
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rollcast.config.errors import UserError
from rollcast.local.status import RunStatus
from rollcast.runfolder.files import FROZEN_FORECAST, RESULT

FREEZE_AT = 0.5
FREEZE_WITHOUT = 0.56
"""Share of the budget at which the evaluation at its half is waited for no longer."""
FREEZE_UNTIL = 0.6
"""A forecaster that was away at half of the budget is waited for until this share; later it would be too easy."""
END_EVALUATIONS = 3
"""The measured end is the mean of that many last evaluations."""


@dataclass(frozen=True, slots=True)
class FrozenForecast:
    step: int
    curve_until_step: int
    """Of the newest evaluation that the forecast knew."""
    compute_device_hours: float
    end_device_hours: float | None
    verdict: str
    low: float
    """5 % quantile of what an evaluation at the end will read."""
    median: float
    high: float
    """95 % quantile."""
    last_value: float
    """The newest evaluation at that moment: what a forecast must beat."""
    num_evaluations: int
    at: float
    """Unix seconds."""

    def sentence(self) -> str:
        return (
            f"forecast of the end, frozen at step {self.step} from the curve until {self.curve_until_step}: "
            f"{self.median:.3f} "
            f"(90 % interval {self.low:.3f} to {self.high:.3f}, {self.verdict}); now {self.last_value:.3f}"
        )


@dataclass(frozen=True, slots=True)
class Result:
    """The frozen forecast beside the end."""

    initial: float
    measured: float
    """Mean of the last three evaluations."""
    frozen: FrozenForecast | None
    error: float | None
    """Forecast minus measured."""
    last_value_error: float | None
    inside: bool | None
    """Whether the 90 % interval held the end."""
    gain_share_at_freeze: float | None
    """Share of the whole gain that was reached when it was frozen."""
    num_evaluations: int

    def sentence(self) -> str:
        measured = f"the end: pass rate {self.measured:.3f} (started at {self.initial:.3f})"
        if self.frozen is None or self.error is None:
            return f"{measured}; no forecast was ready at half of the budget"
        held = "held" if self.inside else "missed"
        return (
            f"{measured}; forecast at step {self.frozen.step} was {self.frozen.median:.3f}, error {self.error:+.3f}, "
            f"its interval {held} it; repeating the value of then errs by {self.last_value_error:+.3f}"
        )


def load_frozen(folder: Path) -> FrozenForecast | None:
    try:
        return FrozenForecast(**json.loads((folder / FROZEN_FORECAST).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def freeze(folder: Path, status: RunStatus) -> FrozenForecast | None:
    """Keep the forecast that knows the curve's first half, as soon as there is one, if nothing was kept yet.

    Raises UserError where it cannot be written.
    """
    share, forecast = status.budget_share, status.forecast
    if share is None or not FREEZE_AT <= share <= FREEZE_UNTIL or not status.evaluations:
        return None
    if forecast is None or forecast.end is None or (folder / FROZEN_FORECAST).exists():
        return None
    knows_half = (status.evaluated_share or 0.0) >= FREEZE_AT and forecast.num_points >= len(status.evaluations)
    after_the_next_step = share + share / max(status.step, 1)
    if not knows_half and after_the_next_step < FREEZE_WITHOUT:
        return None
    newest = status.evaluations[min(max(forecast.num_points, 1), len(status.evaluations)) - 1]
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
        num_evaluations=min(forecast.num_points, len(status.evaluations)),
        at=time.time(),
    )
    _write(folder / FROZEN_FORECAST, asdict(frozen))
    return frozen


def conclude(folder: Path, status: RunStatus) -> Result | None:
    """Hold the frozen forecast against the measured end, and write it down; None without an evaluation.

    Raises UserError where it cannot be written.
    """
    if not status.evaluations:
        return None
    rates = [point.pass_rate for point in status.evaluations]
    measured, initial = fmean(rates[-END_EVALUATIONS:]), rates[0]
    frozen = load_frozen(folder)
    gain = measured - initial
    result = Result(
        initial=initial,
        measured=measured,
        frozen=frozen,
        error=frozen.median - measured if frozen else None,
        last_value_error=frozen.last_value - measured if frozen else None,
        inside=frozen.low <= measured <= frozen.high if frozen else None,
        gain_share_at_freeze=(frozen.last_value - initial) / gain if frozen and gain else None,
        num_evaluations=len(rates),
    )
    _write(folder / RESULT, asdict(result))
    return result


def _write(path: Path, record: dict[str, object]) -> None:
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"run folder {path.parent}: {path.name} cannot be written ({error.strerror}); free space"
        ) from error
