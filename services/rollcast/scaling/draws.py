"""Draws from the grid posterior: equally likely settings of law and noise.

Deterministic: nodes by systematic resampling, the linear part by a fixed low-discrepancy sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from rollcast.scaling.curve import Array
from rollcast.scaling.grid import Grid

NUM_DRAWS = 4096
"""Of one forecast."""
_PLASTIC = 1.324717957244746
"""The plastic number, x^3 = x + 1: steps of 1/x and 1/x^2 fill the unit square evenly (the R2 sequence)."""
UNIFORM: Array = np.mod(0.5 + np.outer([1 / _PLASTIC, 1 / _PLASTIC**2], np.arange(1, NUM_DRAWS + 1)), 1.0).clip(
    1e-9, 1 - 1e-9
)
"""(2, NUM_DRAWS) of the R2 sequence, in (0, 1)."""
NORMAL: Array = ndtri(UNIFORM)
"""The same as standard normal values."""
WHOLE = 0.999
"""Probability of the bounds from which draws need no weights."""
CERTAIN = 6.0
"""Standard deviations from a bound beyond which a normal distribution is taken to lie inside it."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Each (d,): the law's parameters, s, rho and the index of the departure in the grid's axes."""

    initial: Array
    asymptote: Array
    exponent: Array
    log_midpoint: Array
    noise: Array
    drift: Array
    departure: NDArray[np.intp]

    def __getitem__(self, part: slice) -> Draws:
        return Draws(*(getattr(self, field.name)[part] for field in fields(self)))

    def law(self, compute: ArrayLike) -> Array:
        """The law at `compute` (m,) device-hours -> (m, d)."""
        with np.errstate(divide="ignore"):
            log_compute = np.log(np.atleast_1d(np.asarray(compute, dtype=float)))[:, None]
        # tanh is several times as fast as scipy's expit, and most of the time of a forecast goes here
        rise = 0.5 + 0.5 * np.tanh(0.5 * self.exponent * (log_compute - self.log_midpoint))
        return np.asarray(self.initial + (self.asymptote - self.initial) * rise)


def draw(grid: Grid) -> Draws:
    """Draws with 0 <= R_0 <= A <= 1 exactly."""
    node = _resample(grid.weight.ravel())
    mean, spread = grid.asymptote.ravel()[node], np.sqrt(grid.asymptote_variance.ravel()[node])
    asymptote, _ = _truncated_normal(0, mean, spread, np.ones(NUM_DRAWS))
    gain = grid.covariance.ravel()[node] / spread**2
    initial_mean = grid.initial.ravel()[node] + gain * (asymptote - mean)
    initial_spread = np.sqrt(np.maximum(grid.initial_variance.ravel()[node] - gain**2 * spread**2, 1e-18))
    initial, inside = _truncated_normal(1, initial_mean, initial_spread, asymptote)
    # The grid's weights hold A to its bounds; those of R_0 given A are made good here.
    keep = _resample(inside) if np.any(inside < WHOLE) else np.arange(NUM_DRAWS)
    departure, noise, exponent, midpoint = np.unravel_index(node[keep], grid.weight.shape)
    return Draws(
        initial=initial[keep],
        asymptote=asymptote[keep],
        exponent=np.exp(grid.axes.log_exponent[exponent]),
        log_midpoint=grid.axes.log_midpoint[exponent, midpoint],
        noise=np.exp(grid.axes.noise[noise]),
        drift=grid.axes.drift[noise],
        departure=departure,
    )


def _truncated_normal(row: int, mean: Array, spread: Array, upper: Array) -> tuple[Array, Array]:
    """Normal draws (d,) cut to [0, upper] from a row of the sequence, and the probability of that interval."""
    values, inside = mean + spread * NORMAL[row], np.ones(mean.size)
    cut = np.minimum(mean, upper - mean) < CERTAIN * spread
    if np.any(cut):
        mean, spread, upper = mean[cut], spread[cut], upper[cut]
        low, high = ndtr(-mean / spread), ndtr((upper - mean) / spread)
        values[cut] = np.clip(mean + spread * ndtri(low + UNIFORM[row, cut] * (high - low)), 0.0, upper)
        inside[cut] = np.maximum(high - low, 1e-12)
    return values, inside


def _resample(weight: Array) -> NDArray[np.intp]:
    cumulative = np.cumsum(weight)
    position = (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS * cumulative[-1]
    found: NDArray[np.intp] = np.minimum(np.searchsorted(cumulative, position), weight.size - 1)
    return found
