"""Past forecasts compared with the outcome.

The curve is cut at shares of its compute; each part is fitted without the rest, and its forecast of
the end is compared with the mean of the last evaluations and with the baselines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.decisions.fit import check_start, fit_part
from rollcast.scaling.decisions.settings import CUT_ROUNDING
from rollcast.scaling.decisions.verdict import Verdict
from rollcast.scaling.law.baselines import power_law
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions


@dataclass(frozen=True)
class PastForecast:
    """One cut: the forecast of the end made there.

    Attributes:
        share: of the curve's last compute that was seen.
        compute, num_points: of the part that was seen.
        forecast: (5 %, median, 95 %) of the mean of the last evaluations.
        last_value, power_law: the forecasts of these baselines.
        outcome: the measured mean.
    """

    share: float
    compute: float
    num_points: int
    forecast: tuple[float, float, float]
    last_value: float
    power_law: float
    outcome: float
    verdict: Verdict

    @property
    def error(self) -> float:
        """Median forecast minus outcome."""
        return self.forecast[1] - self.outcome

    @property
    def covered(self) -> bool:
        """Whether the 90 % interval holds the outcome."""
        return self.forecast[0] <= self.outcome <= self.forecast[2]


def backtest(
    curve: Curve, shares: Sequence[float] = (0.25, 0.5, 0.75), options: FitOptions | None = None
) -> list[PastForecast]:
    """Forecasts of the end made at `shares` of the compute; cuts with fewer than 3 points are left
    out.

    Raises:
        ValueError: a share lies outside (0, 1), the curve has fewer than 6 points, or R_0 is fixed
            at or above every reading.
    """
    options = options or FitOptions()
    if not all(0 < share < 1 for share in shares):
        raise ValueError(
            f"shares: {list(shares)} must lie between 0 and 1; give the parts of the run to be "
            "seen."
        )
    # Points that a cut must show before the end is forecast from them.
    min_backtest_points = 3
    # Last points whose mean is the outcome that a backtest compares with. Chosen, not measured.
    num_outcome_points = 3
    if len(curve) < min_backtest_points + num_outcome_points:
        raise ValueError(
            f"curve {curve.name!r}: {len(curve)} evaluations are too few for a backtest; "
            f"{min_backtest_points + num_outcome_points} are needed."
        )
    check_start(curve, options)
    end = float(np.mean(curve.compute[-num_outcome_points:]))
    outcome = float(np.mean(curve.pass_rate[-num_outcome_points:]))
    past = []
    for share in shares:
        cut = share * float(curve.compute[-1]) * (1 + CUT_ROUNDING)
        count = int(np.sum(curve.compute <= cut))
        if count < min_backtest_points or count > len(curve) - num_outcome_points:
            continue
        partial_curve = curve.window(stop=cut)
        forecast = fit_part(partial_curve, options)
        # The outcome is a mean of readings, whose white noise averages out.
        error = forecast.reading_error / float(np.sqrt(num_outcome_points))
        low, median, high = forecast.predictive([end], standard_error=error)[:, 0]
        past.append(
            PastForecast(
                share=share,
                compute=float(partial_curve.compute[-1]),
                num_points=count,
                forecast=(float(low), float(median), float(high)),
                last_value=float(partial_curve.pass_rate[-1]),
                power_law=float(power_law(partial_curve).pass_rate(end)),
                outcome=outcome,
                verdict=forecast.verdict,
            )
        )
    return past
