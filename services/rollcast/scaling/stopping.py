"""When the rest of the budget is not worth it: the opt-in `stop_when` of a run, as a pure function.

A run stops when on three refits in a row the verdict is saturated, or the most that the rest of its budget can be
expected to gain stays below what the user asks for. One refit is never enough: a forecast moves with its last points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollcast.scaling.forecast import Forecast
from rollcast.scaling.verdict import VerdictKind

REFITS_IN_A_ROW = 3


@dataclass(frozen=True)
class StopRule:
    """What the user asks for."""

    least_gain: float = 0.01
    """Pass rate that the rest of the budget must still be able to gain (upper 90 % bound)."""
    on_saturated: bool = True
    """Stop on the verdict saturated as well."""

    def __post_init__(self) -> None:
        if not 0 <= self.least_gain <= 1:
            raise ValueError(f"stop_when.least_gain: {self.least_gain:g} is no pass rate; give a value in [0, 1].")


@dataclass(frozen=True)
class Refit:
    """What the rule needs to know of one forecast; small enough to be kept for a whole run."""

    compute: float
    """Of the last point: device-hours, or whatever the curve was fitted against."""
    verdict: VerdictKind
    gain_upper: float
    """95 % quantile of R(budget) - R(now)."""

    @classmethod
    def of(cls, forecast: Forecast, budget: float) -> Refit:
        """`budget`: compute at which the run would end; nothing is gained beyond it."""
        now = float(forecast.curve.compute[-1])
        return cls(now, forecast.verdict.kind, forecast.expected_gain(now, max(budget, now))[2])


def stop_reason(rule: StopRule, refits: Sequence[Refit]) -> str | None:
    """Why the run should be checkpointed and stopped now, or None. `refits` in order of compute.

    A curve that does not bend yet, fell or broke off is never stopped by this rule: its forecast is not to be trusted.
    """
    last = list(refits)[-REFITS_IN_A_ROW:]
    if len(last) < REFITS_IN_A_ROW:
        return None
    if rule.on_saturated and all(refit.verdict is VerdictKind.SATURATED for refit in last):
        return f"saturated on {REFITS_IN_A_ROW} refits in a row"
    trusted = (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)
    if all(refit.verdict in trusted and refit.gain_upper < rule.least_gain for refit in last):
        most = max(refit.gain_upper for refit in last)
        return (
            f"the rest of the budget gains at most {most:.4f} (95 % bound on {REFITS_IN_A_ROW} refits in a row), "
            f"less than {rule.least_gain:g}"
        )
    return None
