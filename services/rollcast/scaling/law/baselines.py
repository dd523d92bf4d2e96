"""Other ways to extrapolate a curve, for contrast and for reproducing printed fits.

Each takes a curve and returns an object with `pass_rate(compute)`; none of them has an interval.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters

PAPER_ASYMPTOTES: Array = np.linspace(0.45, 0.80, 71)
"""Grid of A in arXiv 2510.13786, A.5."""
PAPER_MIDPOINTS: Array = np.linspace(100.0, 40_000.0, 100)
"""Grid of C_mid as stated there; the printed values of its smaller runs are nodes of linspace(100,
4000, 100)."""


@dataclass(frozen=True)
class PowerLaw:
    """R = A - D / C^B (A.4), never below 0."""

    asymptote: float
    scale: float
    exponent: float

    def pass_rate(self, compute: ArrayLike) -> Array:
        """(m,) -> (m,)."""
        with np.errstate(divide="ignore"):
            fall = self.scale * np.asarray(compute, dtype=float) ** -self.exponent
        return np.maximum(self.asymptote - fall, 0.0)


def power_law(curve: Curve) -> PowerLaw:
    """Least squares with 0 <= A <= 1 and D >= 0: closed form in (A, D) for 400 values of B in
    [0.02, 5].
    """
    exponents = np.geomspace(0.02, 5.0, 400)
    # In units of the last compute; undone at the end.
    scale = float(curve.compute[-1])
    y = curve.pass_rate
    fall = (curve.compute / scale) ** -exponents[:, None]
    spread = fall - fall.mean(axis=1, keepdims=True)
    slope = np.maximum(-(spread @ y) / (np.sum(spread**2, axis=1) + 1e-12), 0.0)
    asymptote = y.mean() + slope * fall.mean(axis=1)
    # If the free asymptote is above 1, the best one in [0, 1] is 1.
    above = asymptote > 1
    slope = np.where(
        above, np.maximum(np.sum(fall * (1 - y), axis=1) / np.sum(fall**2, axis=1), 0.0), slope
    )
    asymptote = np.where(above, 1.0, asymptote)
    best = int(np.argmin(np.sum((y - asymptote[:, None] + slope[:, None] * fall) ** 2, axis=1)))
    exponent = float(exponents[best])
    return PowerLaw(float(asymptote[best]), float(slope[best] * scale**exponent), exponent)


def paper_grid(
    curve: Curve,
    initial: float,
    asymptotes: Array = PAPER_ASYMPTOTES,
    midpoints: Array = PAPER_MIDPOINTS,
    max_iterations: int = 60,
) -> SigmoidParameters:
    """The paper's procedure (A.5): a grid over (A, C_mid), B by least squares at each node,
    smallest sum of squares.

    B starts from 1 as in SciPy's curve_fit; all nodes take damped Gauss-Newton steps in ln B
    together.
    """
    log_compute = np.log(curve.compute)
    gain = np.repeat(asymptotes, midpoints.size)[:, None] - initial
    distance = log_compute - np.log(np.tile(midpoints, asymptotes.size))[:, None]
    target = curve.pass_rate - initial
    log_exponent = np.zeros(gain.shape[0])
    damping = np.full(gain.shape[0], 1e-3)
    rise = expit(np.exp(log_exponent)[:, None] * distance)
    cost = np.sum((target - gain * rise) ** 2, axis=1)
    for _ in range(max_iterations):
        jacobian = gain * rise * (1 - rise) * distance * np.exp(log_exponent)[:, None]
        gradient = np.sum(jacobian * (target - gain * rise), axis=1)
        curvature = np.sum(jacobian**2, axis=1)
        step = np.clip(gradient / (curvature * (1 + damping) + 1e-15), -1.0, 1.0)
        tried = np.clip(log_exponent + step, -5.0, 5.0)
        tried_rise = expit(np.exp(tried)[:, None] * distance)
        tried_cost = np.sum((target - gain * tried_rise) ** 2, axis=1)
        better = tried_cost < cost
        log_exponent = np.where(better, tried, log_exponent)
        rise = np.where(better[:, None], tried_rise, rise)
        cost = np.where(better, tried_cost, cost)
        # A step that raised the sum of squares is tried again shorter, each node by itself.
        damping = np.where(better, damping / 5, damping * 5)
        if not np.any(better & (np.abs(step) > 1e-7)):
            break
    best = int(np.argmin(cost))
    return SigmoidParameters(
        initial=initial,
        asymptote=float(asymptotes[best // midpoints.size]),
        exponent=float(np.exp(log_exponent[best])),
        midpoint=float(midpoints[best % midpoints.size]),
    )
