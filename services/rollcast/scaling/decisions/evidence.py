"""What a verdict rests on, in one sentence: what the fitted curve explains, and where the newest readings lie."""

from __future__ import annotations

import numpy as np

from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.draws import Draws

NEWEST = 5
"""The newest readings are so small a part of all of them, rounded down, but three at least."""


def evidence(
    curve: Curve, draws: Draws, observations: Observations, law: Array, first_phase: float, *, is_described: bool
) -> str:
    """Of a curve that does not break.

    `law` (n,): the mean curve at the merged points. `first_phase`: device-hours until which readings leave it, or 0.
    `is_described`: False of a misfit, whose curve tells nothing of where gains end.
    """
    later = curve.compute >= first_phase
    off, rates = _off_the_curve(curve, observations, law)[later], curve.pass_rate[later]
    variance = float(np.mean((rates - rates.mean()) ** 2))
    explained = 1.0 - float(np.mean(off**2)) / variance if variance > 0 else 0.0
    past = int(np.sum(curve.compute[later] > np.exp(np.median(draws.log_midpoint))))
    count = max(3, len(curve) // NEWEST)
    spread = float(np.median(draws.noise * np.sqrt(1.0 + draws.drift**2)) * observations.spread[-1])
    beyond = float(np.mean(off[-count:])) / spread
    ends = f"; gains end with a probability of {np.mean(draws.has_ceiling):.0%}" if is_described else ""
    side = "above" if beyond >= 0 else "below"
    return (
        f"The fitted curve explains {max(explained, 0.0):.0%} of the variance of {off.size} readings, {past} of them "
        f"past C_mid; the newest {count} lie {abs(beyond):.1f} standard deviations {side} it{ends}."
    )


def _off_the_curve(curve: Curve, observations: Observations, law: Array) -> Array:
    """Readings minus the mean curve, which is taken to be straight between the merged points."""
    inside = np.isfinite(observations.log_compute)
    return np.asarray(curve.pass_rate - np.interp(np.log(curve.compute), observations.log_compute[inside], law[inside]))
