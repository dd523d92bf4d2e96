"""Learning curves as a weighted set of parametric families, after Domhan, Springenberg and Hutter
(IJCAI 2015).

The eleven families of that paper, each fitted by itself. Where it draws weights and parameters by
MCMC, here a family's weight is its evidence as BIC has it, and its parameters are drawn from the
normal distribution around the least squares (Laplace). As there, a curve that ends below its last
reading or outside of [0, 1] is invalid: its draws are left out.

x is compute in mean distances between evaluations, so that it counts from about 1 as epochs do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from rollcast.scaling.law.curve import Array, Curve

Family = Callable[..., Array]
Fit = tuple[Array, Array, float, float]
"""Parameters (p,), their covariance (p, p), noise, BIC."""
LARGEST = 50.0
"""Exponents are cut there, so that no step of the search overflows."""
FLAT = 1e-6
"""Ridge of the curvature, relative: a direction that the points do not determine stays near the
least squares."""


def _exp(value: Array) -> Array:
    return np.exp(np.clip(value, -LARGEST, LARGEST))


def _power(base: Array, exponent: float) -> Array:
    return _exp(exponent * np.log(np.maximum(base, 1e-12)))


FAMILIES: dict[str, tuple[Family, tuple[tuple[float, ...], ...]]] = {
    "vapor pressure": (
        lambda x, a, b, c: _exp(a + b / x + c * np.log(x)),
        ((-0.6, -0.5, 0.04), (-1.0, -2.0, 0.1)),
    ),
    "pow3": (
        lambda x, c, a, p: c - a * _power(x, -p),
        ((0.7, 0.5, 0.5), (0.9, 0.7, 0.1)),
    ),
    "log log linear": (
        lambda x, a, b: np.log(np.maximum(a * np.log(x + 1.0) + b, 1e-6)),
        ((0.2, 1.2), (0.5, 1.0)),
    ),
    "hill3": (
        lambda x, y, n, k: y / (1.0 + _power(np.maximum(abs(k), 1e-9) / x, n)),
        ((0.6, 1.0, 3.0), (0.9, 0.5, 10.0)),
    ),
    "log power": (
        lambda x, a, b, c: a / (1.0 + _power(x * _exp(-b), c)),
        ((0.7, 1.0, -1.0), (0.9, 2.0, -0.5)),
    ),
    "pow4": (
        lambda x, c, a, b, p: c - _power(abs(a) * x + abs(b), -p),
        ((0.8, 1.0, 1.0, 0.5), (0.9, 0.2, 1.5, 1.0)),
    ),
    "MMF": (
        lambda x, a, b, k, d: a - (a - b) / (1.0 + _power(abs(k) * x, d)),
        ((0.7, 0.1, 0.1, 1.0), (0.9, 0.2, 0.02, 1.5)),
    ),
    "exp4": (
        lambda x, c, a, b, p: c - _exp(-a * _power(x, p) + b),
        ((0.7, 0.5, -0.5, 0.5), (0.9, 0.1, -0.5, 0.7)),
    ),
    "Janoschek": (
        lambda x, a, b, k, d: a - (a - b) * _exp(-abs(k) * _power(x, d)),
        ((0.7, 0.1, 0.1, 1.0), (0.9, 0.2, 0.02, 0.7)),
    ),
    "Weibull": (
        lambda x, a, b, k, d: a - (a - b) * _exp(-_power(abs(k) * x, d)),
        ((0.7, 0.1, 0.1, 1.0), (0.9, 0.2, 0.02, 0.7)),
    ),
    "ilog2": (
        lambda x, c, a: c - a / np.log(x + 1.0),
        ((0.7, 0.3), (0.9, 0.6)),
    ),
}
"""Name -> the curve, and where its least squares are looked for from. log x + 1 for log x, which is
0 at the start."""


@dataclass(frozen=True, eq=False)
class CurveFamilies:
    """Draws of all families: (d,) weights that sum to 1, and their curves."""

    unit: float
    draws: list[tuple[Family, Array, float, float]]
    """Family, parameters (k, p), weight of each draw, noise."""
    last: tuple[float, float]
    """x and pass rate of the last reading."""

    def quantiles(
        self, compute: ArrayLike, levels: tuple[float, ...], num_readings: float = np.inf
    ) -> Array:
        """Quantiles of the mean of this many readings at `compute` (m,), or of the curve itself ->
        (q, m).
        """
        x = np.atleast_1d(np.asarray(compute, dtype=float)) / self.unit
        values, weights = [], []
        rng = np.random.default_rng(0)
        for family, parameters, weight, noise in self.draws:
            curves = np.stack([family(x, *parameter_set) for parameter_set in parameters])
            ends = curves[:, -1]
            possible_mask = (
                # A curve may end so far below the last reading, which is noisy
                np.isfinite(curves).all(axis=1)
                & (ends <= 1.0)
                & (ends >= max(self.last[1] - 0.05, 0.0))
            )
            noisy_readings = curves[possible_mask] + noise / np.sqrt(
                num_readings
            ) * rng.standard_normal(curves[possible_mask].shape)
            values.append(np.clip(noisy_readings, 0.0, 1.0))
            weights.append(np.full(int(possible_mask.sum()), weight))
        drawn, weight = np.concatenate(values), np.concatenate(weights)
        if not drawn.size:
            return np.full((len(levels), x.size), self.last[1])
        order = np.argsort(drawn, axis=0)
        cumulative = np.cumsum(weight[order], axis=0) / weight.sum()
        places = [
            [int(np.searchsorted(cumulative[:, at], level)) for at in range(x.size)]
            for level in levels
        ]
        ordered = np.take_along_axis(drawn, order, axis=0)
        last = drawn.shape[0] - 1
        return np.array(
            [[ordered[min(rank, last), at] for at, rank in enumerate(row)] for row in places]
        )


def curve_families(curve: Curve) -> CurveFamilies:
    """Every family fitted to the points of a curve."""
    unit = float(curve.compute[-1]) / len(curve)
    x, y = curve.compute / unit, curve.pass_rate
    rng = np.random.default_rng(0)
    fitted = [_fit_family(family, starts, x, y) for family, starts in FAMILIES.values()]
    min_criterion = min(criterion for _, _, _, criterion in fitted)
    draws = []
    for (family, _), (best, covariance, noise, criterion) in zip(
        FAMILIES.values(), fitted, strict=True
    ):
        # Samples of each family
        drawn = rng.multivariate_normal(best, covariance, 400, method="eigh")
        drawn[0] = best
        draws.append((family, drawn, float(np.exp(-0.5 * (criterion - min_criterion))), noise))
    return CurveFamilies(unit, draws, (float(x[-1]), float(y[-1])))


def _fit_family(family: Family, starts: tuple[tuple[float, ...], ...], x: Array, y: Array) -> Fit:
    """Least squares from the best of its starts."""
    solutions = [
        least_squares(lambda p: family(x, *p) - y, start, method="trf", max_nfev=200)
        for start in starts
    ]
    best = min(solutions, key=lambda solution: float(solution.cost))
    count, size = y.size, best.x.size
    # Standard deviation of a reading about its family, at least
    total = max(2.0 * float(best.cost), count * 1e-3**2)
    noise = float(np.sqrt(total / max(count - size, 1)))
    curvature = best.jac.T @ best.jac
    covariance = noise**2 * np.linalg.pinv(
        curvature + FLAT * np.trace(curvature) * np.eye(size), hermitian=True
    )
    return (
        best.x,
        covariance,
        noise,
        count * float(np.log(total / count)) + size * float(np.log(count)),
    )
