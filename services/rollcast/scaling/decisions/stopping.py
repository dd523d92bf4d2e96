"""When the rest of the budget is not worth it: the opt-in `stop_when` of a run, as a pure function.

A run stops when on three refits in a row the verdict is saturated or broken, or no_learning in the
second half of the budget, or the most that the rest of its budget may gain is less than the user
asks for. The gain is judged whatever the verdict. Every forecast must rest on ten evaluations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import NUM_AGREEING_REFITS
from rollcast.scaling.decisions.verdict import VerdictKind

NO_LEARNING = "no learning: the level has not moved beyond its noise since the start"
BROKEN = "broken: the pass rate fell from its peak; continue from a checkpoint before that"


@dataclass(frozen=True)
class StopRule:
    """Conditions under which the user wants the run to stop."""

    least_gain: float = 0.01
    """Pass rate that the rest of the budget must still be able to gain (upper 90 % bound)."""
    on_saturated: bool = True
    """Stop on the verdict saturated as well."""

    def __post_init__(self) -> None:
        if not 0 <= self.least_gain <= 1:
            raise ValueError(
                f"stop_when.least_gain: {self.least_gain:g} is no pass rate; give a value in [0, "
                "1]."
            )


@dataclass(frozen=True)
class Refit:
    """The figures of one forecast that the rule needs; small enough to be kept for a whole run."""

    compute: float
    """Compute of the last point, in device-hours or in the unit that the curve was fitted
    against."""
    verdict: VerdictKind
    gain_upper: float
    """95 % quantile of R(budget) - R(now)."""
    num_points: int
    """Evaluations after the start."""
    rise: float
    """Mean of the last third of the readings minus that of the first."""
    budget_share: float = 1.0
    """Part of the budget that is spent."""

    @classmethod
    def from_forecast(cls, forecast: Forecast, budget: float) -> "Refit":
        """`budget`: compute at which the run would end; nothing is gained beyond it."""
        curve = forecast.curve
        newest_compute = float(curve.compute[-1])
        third = max(1, len(curve) // 3)
        return cls(
            compute=newest_compute,
            verdict=forecast.verdict.kind,
            gain_upper=forecast.expected_gain(newest_compute, max(budget, newest_compute))[2],
            num_points=len(curve),
            rise=float(np.mean(curve.pass_rate[-third:]) - np.mean(curve.pass_rate[:third])),
            budget_share=newest_compute / max(budget, newest_compute),
        )


def stop_reason(rule: StopRule, refits: Sequence[Refit]) -> str | None:
    """Why the run should be checkpointed and stopped now, or None. `refits` in order of compute."""
    last = list(refits)[-NUM_AGREEING_REFITS:]
    if len(last) < NUM_AGREEING_REFITS:
        return None
    # 10: evaluations that a refit needs before its gain counts: with fewer a run that has not taken
    # off looks flat.
    if any(refit.num_points < 10 for refit in last):
        return None
    if rule.on_saturated and all(refit.verdict is VerdictKind.SATURATED for refit in last):
        return f"saturated on {NUM_AGREEING_REFITS} refits in a row"
    if all(refit.verdict is VerdictKind.BROKEN for refit in last):
        return f"{BROKEN}, on {NUM_AGREEING_REFITS} refits in a row"
    # 0.5: share of the budget that must be spent before a run ends by itself because it learns
    # nothing: of such runs of other groups 5 of 12 took off after a quarter of their length, 2 of 8
    # after half of it.
    has_had_its_time = all(refit.budget_share >= 0.5 for refit in last)
    if has_had_its_time and all(refit.verdict is VerdictKind.NO_LEARNING for refit in last):
        return f"{NO_LEARNING}, on {NUM_AGREEING_REFITS} refits in a row"
    if all(refit.gain_upper < rule.least_gain for refit in last):
        highest_gain = max(refit.gain_upper for refit in last)
        return (
            f"the rest of the budget gains at most {highest_gain:.4f} (95 % bound on "
            f"{NUM_AGREEING_REFITS} refits in a "
            f"row), less than {rule.least_gain:g}{_state(last[-1])}"
        )
    return None


def _state(refit: Refit) -> str:
    """The state of a run whose verdict alone would not stop it, for the end of the reason."""
    if refit.verdict in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED):
        return ""
    # 0.02: pass rate, from the first third of a curve to its last: less is within the spread of
    # equal runs (paper, A.5).
    if abs(refit.rise) < 0.02:
        return f"; the curve is flat: {refit.rise:+.3f} from its first third to its last"
    return f"; verdict {str(refit.verdict).replace('_', ' ')}"
