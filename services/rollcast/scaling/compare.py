"""Which run is better: by its asymptote first, then by its efficiency.

Two runs differ in A only beyond the paper's margin of 0.02 (three independent runs of the same recipe spread that far,
A.5 of arXiv 2510.13786). Runs that share an asymptote are fitted again with A held at its common value and compared by
B, as the paper does; the log re-plot (Fig 7) shows that B as a slope:

    F(R) = C_mid^B / ((A - R_0) / (R - R_0) - 1) = C^B,   ln F = B ln C
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.posterior import FitOptions, fit

MARGIN = 0.02
FIXED = 1e-3
"""Standard deviation of an asymptote that is held at a value."""


@dataclass(frozen=True)
class Comparison:
    """Two runs, `first` and `second` by their position in the list.

    Attributes:
        asymptote_difference: (5 %, median, 95 %) of A_first - A_second.
        higher_asymptote: probability that A_first is higher by more than the margin, and that A_second is.
        common_asymptote: A at which B was compared, or None where the asymptotes differ.
        exponent_difference: (5 %, median, 95 %) of B_first - B_second at the common A, or None.
        verdict: in words.
    """

    first: int
    second: int
    asymptote_difference: tuple[float, float, float]
    higher_asymptote: tuple[float, float]
    common_asymptote: float | None
    exponent_difference: tuple[float, float, float] | None
    verdict: str


def compare(forecasts: Sequence[Forecast], margin: float = MARGIN) -> list[Comparison]:
    """Every pair of runs, each fitted on its own.

    Raises:
        ValueError: fewer than two runs.
    """
    if len(forecasts) < 2:
        raise ValueError(f"runs: {len(forecasts)} given; a comparison needs two or more.")
    return [
        _pair(forecasts, first, second, margin)
        for first in range(len(forecasts))
        for second in range(first + 1, len(forecasts))
    ]


def with_asymptote(curve: Curve, asymptote: float, options: FitOptions | None = None) -> Forecast:
    """The fit with A held at `asymptote`."""
    options = options or FitOptions()
    return fit(curve, replace(options, prior=replace(options.prior, asymptote=(asymptote, FIXED))))


def log_replot(curve: Curve, law: SigmoidParameters) -> tuple[Array, Array]:
    """Fig 7: (ln C, ln F) of the points strictly between R_0 and A of `law`; the slope is B."""
    inside = (curve.pass_rate > law.initial) & (curve.pass_rate < law.asymptote)
    ratio = (law.asymptote - law.initial) / (curve.pass_rate[inside] - law.initial) - 1.0
    return np.log(curve.compute[inside]), law.exponent * np.log(law.midpoint) - np.log(ratio)


def difference_of_draws(one: Array, two: Array) -> Array:
    """Differences of independent draws; the second are shuffled, since both sets are in the order of their grid."""
    shuffled: Array = np.random.default_rng(0).permutation(two)
    return one - shuffled


def _pair(forecasts: Sequence[Forecast], first: int, second: int, margin: float) -> Comparison:
    one, two = forecasts[first], forecasts[second]
    difference = difference_of_draws(one.draws.asymptote, two.draws.asymptote)
    higher, lower = float(np.mean(difference > margin)), float(np.mean(difference < -margin))
    low, median, high = (float(v) for v in np.quantile(difference, (0.05, 0.5, 0.95)))
    names = [forecast.curve.name or f"run {index + 1}" for index, forecast in ((first, one), (second, two))]
    if (low > 0 and median > margin) or (high < 0 and median < -margin):
        better = names[0] if median > 0 else names[1]
        verdict = f"{better} has the higher asymptote, by {abs(median):.3f} ({_range(low, high)})."
        return Comparison(first, second, (low, median, high), (higher, lower), None, None, verdict)
    common = float(np.mean([np.median(one.draws.asymptote), np.median(two.draws.asymptote)]))
    refits = [with_asymptote(forecast.curve, common, forecast.options) for forecast in (one, two)]
    slopes = difference_of_draws(refits[0].draws.exponent, refits[1].draws.exponent)
    slope_low, slope, slope_high = (float(v) for v in np.quantile(slopes, (0.05, 0.5, 0.95)))
    if slope_low > 0 or slope_high < 0:
        better = names[0] if slope > 0 else names[1]
        ending = f"{better} is more efficient: B differs by {abs(slope):.2f} ({_range(slope_low, slope_high)})"
    else:
        ending = f"B does not tell them apart either ({slope_low:+.2f} to {slope_high:+.2f})"
    verdict = f"The asymptotes are within the margin ({low:+.3f} to {high:+.3f}); at A = {common:.3f} {ending}."
    return Comparison(
        first, second, (low, median, high), (higher, lower), common, (slope_low, slope, slope_high), verdict
    )


def _range(low: float, high: float) -> str:
    ends = sorted((abs(low), abs(high)))
    return f"90 % {ends[0]:.3f} to {ends[1]:.3f}"
