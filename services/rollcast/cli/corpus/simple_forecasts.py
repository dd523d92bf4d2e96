"""Six forecasts of the end of a window that need no prior: what any other forecast must beat."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import curve_fit

from rollcast.cli.corpus.windows import Window
from rollcast.scaling.law.curve import Array

MAX_EVALUATIONS = 20_000
"""Calls of the fitted function after which a fit counts as failed. The forecast is then the last
value."""
GRID_ASYMPTOTES = np.linspace(0.05, 0.99, 95)
GRID_MIDPOINT_SHARES = np.geomspace(0.02, 10.0, 60)
"""Midpoints of the grid, as shares of the last compute."""
GRID_EXPONENTS = np.geomspace(0.3, 6.0, 20)


def simple_forecasts(window: Window) -> dict[str, float]:
    """The forecast of the mean of the last readings by each method."""
    compute = window.source.compute[: window.num_seen]
    rates = window.source.y[: window.num_seen]
    ahead = np.array(window.ahead)
    last = float(rates[-1])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a fit that fails has its own answer
        return {
            "last": last,
            # Readings whose mean is the forecast `last5`
            "last5": float(rates[-5:].mean()),
            "curve_fit": _fitted_mean(_sigmoid_fit, compute, rates, ahead),
            "power_law": _fitted_mean(_power_law_fit, compute, rates, ahead),
            "linear_in_log": linear_in_log(compute, rates, ahead),
            "grid": grid(compute, rates, ahead),
        }


def linear_in_log(compute: Array, rates: Array, ahead: Array) -> float:
    """A straight line over ln compute by least squares, kept within [0, 1]."""
    slope, level = np.polyfit(np.log(compute), rates, 1)
    return float(np.clip(level + slope * np.log(ahead), 0.0, 1.0).mean())


def grid(compute: Array, rates: Array, ahead: Array) -> float:
    """The sigmoid law through the first reading with the least squares on a grid; the last value if
    no node fits.

    R = R_0 + (A - R_0) / (1 + (M / C)^B)
    """
    start = float(rates[0])
    midpoints, exponents = np.meshgrid(
        GRID_MIDPOINT_SHARES * compute[-1], GRID_EXPONENTS, indexing="ij"
    )
    midpoints = midpoints.ravel()
    exponents = exponents.ravel()
    divisors = 1.0 + (midpoints[:, None] / compute) ** exponents[:, None]
    lowest_squares = np.inf
    forecast = float(rates[-1])
    for asymptote in GRID_ASYMPTOTES[start < GRID_ASYMPTOTES]:
        squares = ((start + (asymptote - start) / divisors - rates) ** 2).sum(axis=1)
        best = int(np.argmin(squares))
        if squares[best] < lowest_squares:
            lowest_squares = float(squares[best])
            later = 1.0 + (midpoints[best] / ahead) ** exponents[best]
            forecast = float((start + (asymptote - start) / later).mean())
    return forecast


def _fitted_mean(
    fit: Callable[[Array, Array, Array], Array], compute: Array, rates: Array, ahead: Array
) -> float:
    """The mean of a fitted law at `ahead`; the last value if the fit does not converge."""
    try:
        return float(fit(compute, rates, ahead).mean())
    except (RuntimeError, ValueError):
        return float(rates[-1])


def _sigmoid_fit(compute: Array, rates: Array, ahead: Array) -> Array:
    """The sigmoid law through the first reading, fitted by SciPy."""
    start = float(rates[0])

    def law(c: Array, asymptote: float, exponent: float, midpoint: float) -> Array:
        return np.asarray(start + (asymptote - start) / (1 + (midpoint / c) ** exponent))

    begin = [_first_asymptote(rates), 1.5, np.median(compute)]
    bounds = ([_least_asymptote(rates), 0.1, compute.min() * 0.01], [1, 10, compute.max() * 100])
    return law(ahead, *_least_squares(law, compute, rates, begin, bounds))


def _power_law_fit(compute: Array, rates: Array, ahead: Array) -> Array:
    """A power of compute towards an asymptote, fitted by SciPy."""
    newest = compute[-1]

    def law(c: Array, asymptote: float, distance: float, exponent: float) -> Array:
        return np.asarray(asymptote - distance * (c / newest) ** -exponent)

    bounds = ([_least_asymptote(rates), 0, 0.01], [1, 10, 5])
    return law(
        ahead, *_least_squares(law, compute, rates, [_first_asymptote(rates), 0.1, 0.7], bounds)
    )


def _least_squares(
    law: Callable[..., Array], compute: Array, rates: Array, begin: Any, bounds: Any
) -> Array:
    parameters, _ = curve_fit(law, compute, rates, p0=begin, bounds=bounds, maxfev=MAX_EVALUATIONS)
    return np.asarray(parameters)


def _first_asymptote(rates: Array) -> float:
    # Pass rate: a fit starts with an asymptote this far above the highest reading, at 0.99 at most
    return float(min(0.99, rates.max() + 0.05))


def _least_asymptote(rates: Array) -> float:
    # Share of the highest reading that is the lower bound of the asymptote
    # 1e-3: pass rate: the bound of a run that reads 0 throughout.
    return float(max(rates.max() * 0.9, 1e-3))
