"""The kind of a curve, in one word and one sentence.

    too_few         fewer evaluations than a law needs: nothing is forecast
    too_early       the readings show no trend yet, or do not determine the pass rate at twice the
                    compute
    forecastable    they show a trend, and the pass rate at twice the compute is known well enough
                    to decide on
    saturated       a notable gain on the level is unlikely until then
    no_learning     the level has not moved beyond its noise since the start
    broken          the pass rate collapsed, or declines since its peak
    not_sigmoid     the fitted curve does not describe the readings, or they lie below it from some
                    point on
    regime_change   the curve jumped up, or began to climb again; or answers are now truncated

This file has the first four kinds. `trend.py`, `no_learning.py`, `falls.py`, `breaks.py` and
`misfit.py` have the rest.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rollcast.scaling.decisions.settings import (
    FORECAST_FACTOR,
    MIN_LAW_POINTS,
    MIN_NEWEST,
    NEWEST_DIVISOR,
    NOTABLE_GAIN,
)
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.draws import Draws


class VerdictKind(StrEnum):
    """The eight kinds."""

    TOO_FEW = "too_few"
    TOO_EARLY = "too_early"
    FORECASTABLE = "forecastable"
    SATURATED = "saturated"
    NO_LEARNING = "no_learning"
    BROKEN = "broken"
    NOT_SIGMOID = "not_sigmoid"
    REGIME_CHANGE = "regime_change"

    @property
    def is_described(self) -> bool:
        """Whether a law describes such curves; see `Verdict.is_described`."""
        return self in (VerdictKind.TOO_EARLY, VerdictKind.FORECASTABLE, VerdictKind.SATURATED)

    @property
    def is_decidable(self) -> bool:
        """Whether the forecast is for decisions: a law that is known well enough, or a level that
        does not move.
        """
        return self in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED, VerdictKind.NO_LEARNING)


@dataclass(frozen=True)
class Verdict:
    """A kind, and the reason: one sentence on the kind and one on the evidence.

    Attributes:
        at: compute near which the run broke or changed, on the axis of the fit; None for other
            verdicts.
        num_missing: further evaluations that a forecast needs, of the run or of its part after a
            change; 0 if it is made.
        has_trend: False for a run that is too early because its readings show no trend beyond
            noise.
    """

    kind: VerdictKind
    reason: str
    at: float | None = None
    num_missing: int = 0
    has_trend: bool = True

    @property
    def is_described(self) -> bool:
        """Whether the law describes the curve: only then do its constants and its gains mean
        something.
        """
        return self.kind.is_described and self.has_trend

    @property
    def has_forecast(self) -> bool:
        """Whether readings to come are forecast: a band and an end are drawn beyond now."""
        return self.num_missing == 0 and self.kind is not VerdictKind.BROKEN

    @property
    def has_predictions(self) -> bool:
        """Whether a reading at a compute that the user names has quantiles."""
        return self.kind is not VerdictKind.TOO_FEW


def judge_number(curve: Curve) -> Verdict | None:
    """The verdict that the evaluations after the start are too few for any forecast, or None."""
    num_missing = MIN_LAW_POINTS - len(curve)
    if num_missing <= 0:
        return None
    start = ""
    if curve.initial is not None:
        start = " The evaluation at step 0 is its start and is not one of them."
    return Verdict(
        VerdictKind.TOO_FEW,
        f"{len(curve)} of the {MIN_LAW_POINTS} evaluations that a forecast needs.{start}",
        num_missing=num_missing,
    )


def judge(
    curve: Curve, draws: Draws, later_readings: Array, interval: tuple[float, float], level: float
) -> Verdict:
    """The verdict on a curve that learns and does not break.

    `later_readings` (u,): equally likely readings at `FORECAST_FACTOR` times the compute;
    `interval`: their 90 % interval; `level`: the smoothed readings now.
    """
    low, high = interval
    horizon_phrase = f"at {FORECAST_FACTOR:g} times the compute"
    # 0.3: pass rate: widest 90 % interval there with which a run is forecastable. From half of a
    # run six in ten windows of other groups are as narrow, and the interval held 89 % of these.
    # With 0.15 it is three in ten, and 87 % held.
    if high - low > 0.3:
        return Verdict(
            VerdictKind.TOO_EARLY,
            f"The pass rate {horizon_phrase} could be anywhere from {low:.2f} to "
            f"{high:.2f} (90 %).",
        )
    chance = float(np.mean(later_readings - level >= NOTABLE_GAIN))
    gains = f"a gain of {NOTABLE_GAIN:g} on the smoothed readings has a chance of {chance:.0%}"
    # 0.1: largest chance of it in a saturated run. Of 22 such windows of other groups, from half
    # on, 2 gained it after all, and 7 of 41 flat runs were recognised; with 0.3, 20 of 99 and 24.
    # The word is for runs that may be ended, so false ones cost more than missed ones.
    if chance < 0.1:
        return Verdict(VerdictKind.SATURATED, f"Until twice the compute {gains}.")
    reason = (
        f"The pass rate {horizon_phrase} lies between {low:.3f} and {high:.3f} (90 %); {gains}."
    )
    # Multiples of C_mid that the window must have reached before the bend counts as passed. If the
    # window only touches the bend, the prior alone parts it from the first phase and B from C_mid,
    # and A tends to come out too low.
    min_midpoint_multiple = 1.5
    passed = float(np.mean(draws.log_midpoint < np.log(curve.compute[-1] / min_midpoint_multiple)))
    # 0.6: posterior probability from which the bend counts as passed: a run that has not risen yet
    # may rise any day. Surer ones held no more often on the windows of other groups.
    if passed < 0.6:
        reason += (
            f" The bend is not clearly behind ({min_midpoint_multiple:g} C_mid is reached with a "
            f"probability of {np.floor(100 * passed):.0f} %), so A rests mostly on the prior."
        )
    return Verdict(VerdictKind.FORECASTABLE, reason)


def evidence(
    curve: Curve,
    draws: Draws,
    observations: Observations,
    law: Array,
    first_phase: float,
    *,
    is_described: bool,
) -> str:
    """The sentence about a curve that does not break.

    Args:
        law: (n,) the mean curve at the merged points.
        first_phase: device-hours until which readings leave the curve, or 0.
        is_described: False if the curve says nothing about where gains end.
    """
    is_after_first_phase = curve.compute >= first_phase
    inside = np.isfinite(observations.log_compute)  # without a measured start, which is at ln 0
    # The mean curve is known at the merged points and interpolated between them.
    mean_curve = np.interp(np.log(curve.compute), observations.log_compute[inside], law[inside])
    residual = (curve.pass_rate - mean_curve)[is_after_first_phase]
    rates = curve.pass_rate[is_after_first_phase]
    variance = float(np.mean((rates - rates.mean()) ** 2))
    explained = 1.0 - float(np.mean(residual**2)) / variance if variance > 0 else 0.0
    # The newest readings in units of the whole noise of one evaluation.
    count = max(MIN_NEWEST, len(curve) // NEWEST_DIVISOR)
    noise = float(np.median(draws.noise * np.sqrt(1.0 + draws.drift**2)) * observations.spread[-1])
    beyond = float(np.mean(residual[-count:])) / noise
    side = "above" if beyond >= 0 else "below"
    midpoint_phrase = ""
    ceiling_phrase = ""
    if is_described:
        num_past = int(
            np.sum(curve.compute[is_after_first_phase] > np.exp(np.median(draws.log_midpoint)))
        )
        midpoint_phrase = f", {num_past} of them past C_mid"
        ceiling_phrase = f"; gains end with a probability of {np.mean(draws.has_ceiling):.0%}"
    return (
        f"The fitted curve explains {max(explained, 0.0):.0%} of the variance of {residual.size} "
        f"readings{midpoint_phrase}; the "
        f"newest {count} lie {abs(beyond):.1f} standard deviations {side} it{ceiling_phrase}."
    )
