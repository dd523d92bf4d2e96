"""Forecasts of the end, with a second witness and without it, scored on the measured ends."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import norm

from lab.witness.extrapolation import Array

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MIN_WITNESS_ERROR = 0.02
"""Standard deviation of a witness, at least: a few other runs may agree by chance."""


def pinball(quantiles: Array, outcome: float) -> float:
    error = outcome - quantiles
    levels = np.array(QUANTILES)
    return float(np.mean(np.maximum(levels * error, (levels - 1.0) * error)))


def compared(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Absolute error of the median and pinball loss of every forecast, on every run and in the
    mean.

    A witness is a single number. Its quantiles are as wide as its errors on the other runs. With
    the forecast it is joined by the mean of each quantile.
    """
    losses: dict[str, list[tuple[float, float]]] = {}
    for index, run in enumerate(runs):
        forecast = np.array(run["forecast"])
        candidates = {"forecast": forecast}
        others = runs[:index] + runs[index + 1 :]
        for name, value in run["witness"].items():
            alone = _around(value, [other["witness"][name] - other["outcome"] for other in others])
            candidates[name] = alone
            candidates[f"forecast and {name}"] = 0.5 * (forecast + alone)
        for name, quantiles in candidates.items():
            error = abs(float(quantiles[QUANTILES.index(0.5)]) - run["outcome"])
            losses.setdefault(name, []).append((error, pinball(quantiles, run["outcome"])))
    return {name: _summary(found) for name, found in losses.items()}


def _summary(found: list[tuple[float, float]]) -> dict[str, Any]:
    errors = [error for error, _ in found]
    pinballs = [loss for _, loss in found]
    return {
        "error": fmean(errors),
        "pinball": fmean(pinballs),
        "errors": errors,
        "pinballs": pinballs,
    }


def _around(value: float, errors: list[float]) -> Array:
    """Quantiles around `value` as wide as the errors that its kind had on the other runs."""
    spread = fmean(error**2 for error in errors) ** 0.5 if errors else 0.0
    quantiles = value + max(spread, MIN_WITNESS_ERROR) * norm.ppf(QUANTILES)
    return np.asarray(quantiles, dtype=float).clip(0.0, 1.0)
