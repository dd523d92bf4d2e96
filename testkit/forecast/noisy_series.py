"""Series of readings around one level, and series that rise: a forecast must distinguish them.

The noise is independent, or an AR(1) process whose neighbours correlate; its standard deviation is
that of one reading.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.curve import Array, Curve, sigmoid

LEVELS = (0.17, 0.8)
"""Pass rates between which a series without a trend lies."""
RISES_IN_NOISE = (8.0, 12.0)
"""Rise from the first reading to the last, in standard deviations of the noise."""
EDGE = 0.05
"""Pass rate: distance of a rising law from 0 and 1."""


@dataclass(frozen=True)
class Cell:
    """Readings in a series, standard deviation of their noise in pass rate, correlation of
    neighbours.
    """

    count: int
    noise: float
    correlation: float

    @property
    def name(self) -> str:
        return f"{self.count} readings, noise {self.noise:g}, AR(1) {self.correlation:g}"


def flat_series(cell: Cell, rng: np.random.Generator) -> Curve:
    """Noise around one level."""
    return _series(cell, np.full(cell.count, rng.uniform(*LEVELS)), rng)


def rising_series(cell: Cell, rng: np.random.Generator) -> Curve:
    """Noise around a law that rises by 8 to 12 standard deviations within the series."""
    rise = cell.noise * rng.uniform(*RISES_IN_NOISE)
    exponent = float(np.exp(rng.normal(0.74, 0.35)))
    midpoint = float(np.exp(rng.normal(-0.8, 0.7)))
    law = sigmoid(
        np.arange(1.0, cell.count + 1.0, dtype=np.float64) / cell.count,
        0.0,
        1.0,
        exponent,
        midpoint,
    )
    relative_rise = (law - law[0]) / (law[-1] - law[0])
    return _series(cell, rng.uniform(EDGE, 1.0 - EDGE - rise) + rise * relative_rise, rng)


def ar1_noise(count: int, correlation: float, rng: np.random.Generator) -> Array:
    """(n,) of variance 1."""
    normal = rng.standard_normal(count)
    noise = normal.copy()
    for index in range(1, count):
        noise[index] = (
            correlation * noise[index - 1] + np.sqrt(1.0 - correlation**2) * normal[index]
        )
    return noise


def _series(cell: Cell, level: Array, rng: np.random.Generator) -> Curve:
    readings = level + cell.noise * ar1_noise(cell.count, cell.correlation, rng)
    # Steps between evaluations
    steps = 50.0 * np.arange(1.0, cell.count + 1.0)
    return Curve.from_points(list(steps), list(np.clip(readings, 0.0, 1.0)), unit="steps")
