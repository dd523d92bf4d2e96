"""Which run is better: by its asymptote first, then by its efficiency.

Two runs differ in A only beyond the paper's margin of 0.02 (three independent runs of the same
recipe spread that far, A.5 of arXiv 2510.13786). Runs that share an asymptote are fitted again with
A held at its common value and compared by B, as the paper does; the log re-plot (Fig 7) shows that
B as a slope:

    F(R) = C_mid^B / ((A - R_0) / (R - R_0) - 1) = C^B,   ln F = B ln C

B does not see a run that learns the same in twice the compute: that doubles C_mid and leaves B
unchanged. So the compute at which the laws pass the same pass rate, half-way up, is compared as
well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import LOG_COMPUTE_RATIO_MARGIN
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR

Triple = tuple[float, float, float]
"""(5 %, median, 95 %)."""


@dataclass(frozen=True)
class Comparison:
    """Two runs, `first` and `second` by their position in the list.

    Attributes:
        asymptote_difference: (5 %, median, 95 %) of A_first - A_second.
        higher_asymptote: probability that A_first is higher by more than the margin, and that
            A_second is.
        common_asymptote: A at which B was compared, or None if the asymptotes differ.
        exponent_difference: (5 %, median, 95 %) of B_first - B_second at the common A, or None.
        compute_ratio: the same of the compute that the first takes half-way to the common A over
            what the second takes.
        verdict: in words.
    """

    first: int
    second: int
    asymptote_difference: Triple
    higher_asymptote: tuple[float, float]
    common_asymptote: float | None
    exponent_difference: Triple | None
    compute_ratio: Triple | None
    verdict: str


def compare(forecasts: Sequence[Forecast]) -> list[Comparison]:
    """Every pair of runs, each fitted on its own.

    Raises:
        ValueError: fewer than two runs.
    """
    if len(forecasts) < 2:
        raise ValueError(f"runs: {len(forecasts)} given; a comparison needs two or more.")
    return [
        _pair(forecasts, first, second)
        for first in range(len(forecasts))
        for second in range(first + 1, len(forecasts))
    ]


def with_asymptote(curve: Curve, asymptote: float, options: FitOptions | None = None) -> Forecast:
    """The fit with A held at `asymptote`."""
    options = options or FitOptions(prior=LAW_PRIOR)
    # 1e-3: pass rate: prior standard deviation of an asymptote that is held at a value.
    return fit(curve, replace(options, prior=replace(options.prior, asymptote=(asymptote, 1e-3))))


def half_way(forecast: Forecast, asymptote: float) -> float:
    """The pass rate half-way from the run's start to `asymptote`."""
    return 0.5 * (float(np.median(forecast.draws.initial)) + asymptote)


def log_compute_to(forecast: Forecast, pass_rate: float) -> Array:
    """(d,) ln of the device-hours at which each draw of the law passes `pass_rate`; far outside the
    run if never.
    """
    draws = forecast.draws
    # Odds of the gain below which, or above whose inverse, a pass rate counts as never reached.
    min_gain_odds = 1e-6
    odds = (pass_rate - draws.initial) / np.maximum(draws.asymptote - pass_rate, min_gain_odds)
    return np.asarray(
        draws.log_midpoint
        + np.log(np.clip(odds, min_gain_odds, 1.0 / min_gain_odds)) / draws.exponent
    )


def log_replot(curve: Curve, law: SigmoidParameters) -> tuple[Array, Array]:
    """Fig 7: (ln C, ln F) of the points strictly between R_0 and A of `law`; the slope is B."""
    inside = (curve.pass_rate > law.initial) & (curve.pass_rate < law.asymptote)
    ratio = (law.asymptote - law.initial) / (curve.pass_rate[inside] - law.initial) - 1.0
    return np.log(curve.compute[inside]), law.exponent * np.log(law.midpoint) - np.log(ratio)


def difference_of_draws(first_draws: Array, second_draws: Array) -> Array:
    """Differences of independent draws.

    The second set is shuffled, because both are in the order of their grids.
    """
    shuffled: Array = np.random.default_rng(0).permutation(second_draws)
    return first_draws - shuffled


def triple(values: NDArray[np.floating[Any]]) -> Triple:
    """(3,) as plain numbers."""
    low, median, high = values.tolist()
    return low, median, high


def quantiles(draws: Array) -> Triple:
    """(5 %, median, 95 %) of draws (d,)."""
    return triple(np.quantile(draws, (0.05, 0.5, 0.95)))


def logarithms(ratios: Triple) -> Triple:
    """The ln of the quantiles of a ratio."""
    return triple(np.log(ratios))


def is_off_zero(interval: Triple, margin: float = 0.0) -> bool:
    """Whether the interval excludes 0 and its median is beyond the margin."""
    return (interval[0] > 0 or interval[2] < 0) and abs(interval[1]) > margin


def _pair(forecasts: Sequence[Forecast], first: int, second: int) -> Comparison:
    first_run = forecasts[first]
    second_run = forecasts[second]
    difference = difference_of_draws(first_run.draws.asymptote, second_run.draws.asymptote)
    higher = float(np.mean(difference > ASYMPTOTE_MARGIN))
    lower = float(np.mean(difference < -ASYMPTOTE_MARGIN))
    interval = quantiles(difference)
    low, median, high = interval
    names = [forecasts[index].curve.name or f"run {index + 1}" for index in (first, second)]
    if is_off_zero(interval, ASYMPTOTE_MARGIN):
        better = names[0] if median > 0 else names[1]
        verdict = f"{better} has the higher asymptote, by {abs(median):.3f} ({_range(low, high)})."
        return Comparison(first, second, interval, (higher, lower), None, None, None, verdict)
    common = float(
        np.mean([np.median(first_run.draws.asymptote), np.median(second_run.draws.asymptote)])
    )
    # B is compared at one A for both, as in the paper.
    fixed = [with_asymptote(run.curve, common, run.options) for run in (first_run, second_run)]
    slopes = quantiles(difference_of_draws(fixed[0].draws.exponent, fixed[1].draws.exponent))
    level = half_way(fixed[0], common)
    log_computes = [log_compute_to(run, level) for run in fixed]
    delays = quantiles(difference_of_draws(*log_computes))
    is_same = low >= -ASYMPTOTE_MARGIN and high <= ASYMPTOTE_MARGIN
    verdict = (
        f"The asymptotes {'are within the margin' if is_same else 'cannot be separated'} "
        f"({low:+.3f} to {high:+.3f}); at A = {common:.3f} {_efficiency(slopes, delays, names)}."
    )
    return Comparison(
        first, second, interval, (higher, lower), common, slopes, triple(np.exp(delays)), verdict
    )


def _efficiency(slopes: Triple, delays: Triple, names: Sequence[str]) -> str:
    """`delays`: ln of the first run's compute half-way up over the second's."""
    if is_off_zero(delays, LOG_COMPUTE_RATIO_MARGIN):
        better = names[0] if delays[1] < 0 else names[1]
        low, ratio, high = np.exp(-np.abs(delays))
        return (
            f"{better} is more efficient: half-way up it has taken {ratio:.2f} times the compute "
            f"of the other ({_range(float(low), float(high))}); B differs by {slopes[1]:+.2f} "
            f"({slopes[0]:+.2f} to {slopes[2]:+.2f})"
        )
    if is_off_zero(slopes):
        better = names[0] if slopes[1] > 0 else names[1]
        return (
            f"{better} is more efficient: B differs by {abs(slopes[1]):.2f} "
            f"({_range(slopes[0], slopes[2])})"
        )
    low, _, high = np.exp(delays)
    return (
        f"B does not separate them either ({slopes[0]:+.2f} to {slopes[2]:+.2f}), nor does the "
        f"compute that they take half-way up ({low:.2f} to {high:.2f} times)"
    )


def _range(low: float, high: float) -> str:
    ends = sorted((abs(low), abs(high)))
    return f"90 % {ends[0]:.3f} to {ends[1]:.3f}"
