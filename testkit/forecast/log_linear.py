"""The fit of ln(A / R - 1) over ln C: a straight line, for contrast with the law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from rollcast.scaling.law.curve import Array, Curve


@dataclass(frozen=True)
class LogLinear:
    """R = A / (1 + exp(intercept + slope ln C)): the law with R_0 = 0, slope = -B."""

    asymptote: float
    intercept: float
    slope: float

    def pass_rate(self, compute: ArrayLike) -> Array:
        """(m,) -> (m,)."""
        with np.errstate(divide="ignore"):
            log_compute = np.log(np.asarray(compute, dtype=float))
        return np.asarray(self.asymptote * expit(-self.intercept - self.slope * log_compute))


def log_linear(curve: Curve) -> LogLinear:
    """ln(A / R - 1) = intercept + slope ln C for 400 values of A; the one with the least squares in
    R is kept.

    Each regression weighs a point by (dR / d ln(A/R - 1))^2 = (R (1 - R / A))^2, so that its error
    counts as one in R.
    """
    y = np.clip(curve.pass_rate, 1e-6, None)
    asymptotes = (
        np.linspace(min(float(y.max()), 1.0), 1.0, 401)[1:] if y.max() < 1 else np.array([1.0])
    )
    share = np.minimum(y / asymptotes[:, None], 1 - 1e-6)
    target = np.log(1 / share - 1)
    weight = (y * (1 - share)) ** 2
    weight /= weight.sum(axis=1, keepdims=True)
    x = np.log(curve.compute)
    x_mean = weight @ x
    target_mean = np.sum(weight * target, axis=1)
    x_spread = x - x_mean[:, None]
    slope = np.sum(weight * x_spread * (target - target_mean[:, None]), axis=1) / (
        np.sum(weight * x_spread**2, axis=1) + 1e-12
    )
    intercept = target_mean - slope * x_mean
    model = asymptotes[:, None] * expit(-intercept[:, None] - slope[:, None] * x)
    best = int(np.argmin(np.sum((y - model) ** 2, axis=1)))
    return LogLinear(float(asymptotes[best]), float(intercept[best]), float(slope[best]))
