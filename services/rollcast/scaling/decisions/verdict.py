"""What kind of curve this is, in one word and one sentence.

    too_early       the curve has not bent: the gain of as much compute again is not known well enough
    forecastable    the bend is behind, and the pass rate at twice the compute is known well enough to decide on
    saturated       the remaining gain, on the law and on the last reading, is within the margin on A, turns included
    not_sigmoid     the pass rate fell for good, or the fitted curve does not describe the readings
    regime_change   the curve jumped up, or began to climb again; or answers are now truncated

This file has the first three. `falls.py`, `breaks.py` and `misfit.py` have the others, which are tried first.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rollcast.scaling.decisions.digits import difference
from rollcast.scaling.decisions.settings import (
    CONFIDENCE,
    FORECAST_FACTOR,
    MAX_FORECAST_WIDTH,
    MAX_GAIN_PROBABILITY,
    MIN_BEND_PROBABILITY,
    MIN_LAW_POINTS,
    MIN_MIDPOINT_MULTIPLE,
    MIN_NEWEST,
    MIN_SHAPE_WEIGHT,
    NEWEST_DIVISOR,
)
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN
from rollcast.scaling.posterior.draws import Draws
from rollcast.scaling.posterior.prior import Prior
from rollcast.scaling.posterior.turns import chance_of_rise


class VerdictKind(StrEnum):
    """The five kinds."""

    TOO_EARLY = "too_early"
    FORECASTABLE = "forecastable"
    SATURATED = "saturated"
    NOT_SIGMOID = "not_sigmoid"
    REGIME_CHANGE = "regime_change"

    @property
    def is_described(self) -> bool:
        """Whether the law describes the curve: only then do its constants and its gains mean something."""
        return self not in (VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE)

    @property
    def is_decidable(self) -> bool:
        """Whether the numbers are for decisions."""
        return self in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)


@dataclass(frozen=True)
class Verdict:
    """A kind, and the reason: one sentence on the kind and one on the evidence."""

    kind: VerdictKind
    reason: str


def judge(curve: Curve, draws: Draws, prior: Prior) -> Verdict:
    """The verdict on a curve that does not break. `prior`: how likely turns are that no window shows."""
    count = len(curve)
    if count < MIN_LAW_POINTS:
        made = "1 evaluation" if count == 1 else f"{count} evaluations"
        return Verdict(VerdictKind.TOO_EARLY, f"Only {made}; the law needs {MIN_LAW_POINTS} or more.")
    last = float(curve.compute[-1])
    now, later = draws.law([last, FORECAST_FACTOR * last])
    low = float(np.quantile(later, 0.05))
    high = float(np.quantile(later, 0.95))
    left = _left(draws, now, later)
    passed = float(np.mean(draws.log_midpoint < np.log(last / MIN_MIDPOINT_MULTIPLE)))
    # Within the margin of a pass rate of 1 nothing is left to gain, whether the bend is behind or not.
    at_the_ceiling = 1.0 - float(np.quantile(now, 0.05)) < ASYMPTOTE_MARGIN
    if left >= ASYMPTOTE_MARGIN and high - low > MAX_FORECAST_WIDTH:
        return Verdict(
            VerdictKind.TOO_EARLY,
            f"The curve has not bent enough: at {FORECAST_FACTOR:g} times the compute the pass rate could be anywhere "
            f"from {low:.2f} to {high:.2f} (90 %).",
        )
    if passed < MIN_BEND_PROBABILITY and not at_the_ceiling:
        return Verdict(
            VerdictKind.TOO_EARLY,
            f"The bend is not clearly behind: the run has reached {MIN_MIDPOINT_MULTIPLE:g} C_mid with a probability "
            f"of {np.floor(100 * passed):.0f} %, less than {100 * MIN_BEND_PROBABILITY:g} %; until then a pass rate "
            f"from {low:.2f} to {high:.2f} (90 %) at {FORECAST_FACTOR:g} times the compute depends mostly on "
            "the prior.",
        )
    range_later = (
        f"At {FORECAST_FACTOR:g} times the compute the pass rate lies between {low:.3f} and {high:.3f} (90 %)."
    )
    reading = float(curve.pass_rate[-1])
    at_most = max(left, _left_under_every_shape(draws, now, later))
    may_gain = at_most >= ASYMPTOTE_MARGIN or high - reading >= ASYMPTOTE_MARGIN
    may_not_have_bent = passed < CONFIDENCE and not at_the_ceiling
    if may_gain or may_not_have_bent:
        return Verdict(VerdictKind.FORECASTABLE, range_later)
    chance = _chance_of_gain(draws, prior, now, later, reading)
    if chance > MAX_GAIN_PROBABILITY:
        return Verdict(
            VerdictKind.FORECASTABLE,
            f"{range_later} On the curve, which alone the advice counts, at most {difference(at_most)} is left to gain "
            f"(95 %). With turns, as settled runs sometimes take, it is {ASYMPTOTE_MARGIN:g} or more until then with a "
            f"probability of {chance:.0%}.",
        )
    return Verdict(
        VerdictKind.SATURATED,
        f"At most {difference(at_most)} is left to gain (95 % bound under every shape with weight), "
        f"less than the margin of {ASYMPTOTE_MARGIN:g} on the asymptote.",
    )


def _gains_left(draws: Draws, now: Array, later: Array) -> Array:
    """(d,) the remaining gain: to the asymptote, or until twice the compute if a tail goes on."""
    return np.where(draws.tail == 0.0, draws.asymptote - now, later - now)


def _left(draws: Draws, now: Array, later: Array) -> float:
    """95 % bound of the remaining gain on the curve."""
    return max(float(np.quantile(_gains_left(draws, now, later), CONFIDENCE)), 0.0)


def _left_under_every_shape(draws: Draws, now: Array, later: Array) -> float:
    """The largest bound of the remaining gain among the law, rising tails and falling tails that have weight."""
    signs = np.sign(draws.tail)
    bounds = []
    for sign in (-1.0, 0.0, 1.0):
        has_shape = signs == sign
        if np.mean(has_shape) >= MIN_SHAPE_WEIGHT:
            shape = np.flatnonzero(has_shape)
            bounds.append(_left(draws[shape], now[shape], later[shape]))
    return max(bounds)


def _chance_of_gain(draws: Draws, prior: Prior, now: Array, later: Array, reading: float) -> float:
    """Probability that curve and turns together gain the margin, on the law now or on the last reading."""
    # A pass rate ends at 1: from beyond 1 - margin no turn can bring the margin.
    highest = 1.0 - ASYMPTOTE_MARGIN
    missing = np.where(now <= highest, ASYMPTOTE_MARGIN - _gains_left(draws, now, later), np.inf)
    if reading <= highest:
        missing = np.minimum(missing, ASYMPTOTE_MARGIN - (later - reading))
    chance = np.where(missing <= 0.0, 1.0, chance_of_rise(prior, FORECAST_FACTOR, missing))
    return float(np.mean(chance))


def evidence(
    curve: Curve, draws: Draws, observations: Observations, law: Array, first_phase: float, *, is_described: bool
) -> str:
    """The sentence about a curve that does not break.

    Args:
        law: (n,) the mean curve at the merged points.
        first_phase: device-hours until which readings leave the curve, or 0.
        is_described: False for a misfit, whose curve says nothing about where gains end.
    """
    later = curve.compute >= first_phase
    inside = np.isfinite(observations.log_compute)  # without a measured start, which is at ln 0
    # The mean curve is known at the merged points and interpolated between them.
    mean_curve = np.interp(np.log(curve.compute), observations.log_compute[inside], law[inside])
    residual = (curve.pass_rate - mean_curve)[later]
    rates = curve.pass_rate[later]
    variance = float(np.mean((rates - rates.mean()) ** 2))
    explained = 0.0
    if variance > 0:
        explained = 1.0 - float(np.mean(residual**2)) / variance
    past = int(np.sum(curve.compute[later] > np.exp(np.median(draws.log_midpoint))))
    # The newest readings in units of the whole noise of one evaluation.
    count = max(MIN_NEWEST, len(curve) // NEWEST_DIVISOR)
    noise = float(np.median(draws.noise * np.sqrt(1.0 + draws.drift**2)) * observations.spread[-1])
    beyond = float(np.mean(residual[-count:])) / noise
    side = "above" if beyond >= 0 else "below"
    ends = ""
    if is_described:
        ends = f"; gains end with a probability of {np.mean(draws.has_ceiling):.0%}"
    return (
        f"The fitted curve explains {max(explained, 0.0):.0%} of the variance of {residual.size} readings, {past} of "
        f"them past C_mid; the newest {count} lie {abs(beyond):.1f} standard deviations {side} it{ends}."
    )
