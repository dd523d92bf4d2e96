"""The evidence for a verdict in one sentence: how much the fitted curve explains, and how far off the newest readings
are."""

import numpy as np

from rollcast.scaling.decisions.settings import MIN_NEWEST, NEWEST_DIVISOR
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.draws import Draws


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
