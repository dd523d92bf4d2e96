"""What a refit costs: processor time on one core, so that a busy machine does not count."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import curve_fit

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.baselines import PAPER_ASYMPTOTES, PAPER_MIDPOINTS, paper_grid
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def speed() -> dict[str, Any]:
    """Milliseconds of processor time, medians; memory in MB."""
    small, large = _curve(100), _curve(1000)
    refit = _milliseconds(lambda: fit(small), 50)
    figures = {
        "refit_100_points_ms": refit,
        "refit_1000_points_ms": _milliseconds(lambda: fit(large), 50),
        "law_alone_100_points_ms": _milliseconds(
            lambda: fit(small, FitOptions(prior=LAW_PRIOR)), 50
        ),
        "paper_grid_ms": _milliseconds(lambda: paper_grid(small, 0.2), 3),
        "paper_grid_curve_fit_ms": _paper_grid_with_curve_fit(small),
        "hundred_runs_refit_and_drawn_s": _milliseconds(_hundred_live_runs, 1) / 1000,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    figures["times_faster_than_curve_fit"] = figures["paper_grid_curve_fit_ms"] / refit
    return figures


def _hundred_live_runs() -> None:
    """One scrape interval of a service with a hundred runs of 60 evaluations: refit and a band of
    40 values each.
    """
    for seed in range(100):
        forecast = fit(_curve(60, seed))
        forecast.pass_rate(np.geomspace(10, 4_000, 40), QUANTILES)


def _paper_grid_with_curve_fit(curve: Curve) -> float:
    """Fit the same grid with one SciPy curve_fit per node, as the paper describes it; every 71st
    node is timed.
    """
    nodes = [
        (asymptote, midpoint) for asymptote in PAPER_ASYMPTOTES for midpoint in PAPER_MIDPOINTS
    ][::71]

    def law_at(asymptote: float, midpoint: float) -> Callable[[Array, float], Array]:
        return lambda compute, exponent: sigmoid(compute, 0.2, asymptote, exponent, midpoint)

    start = time.process_time()
    for asymptote, midpoint in nodes:
        curve_fit(law_at(asymptote, midpoint), curve.compute, curve.pass_rate)
    return (time.process_time() - start) * 71 * 1000


def _curve(count: int, seed: int = 0) -> Curve:
    compute = np.linspace(1_000 / count, 1_000, count)
    noise = 0.01 * np.random.default_rng(seed).standard_normal(count)
    return Curve.from_points(compute, np.clip(sigmoid(compute, 0.2, 0.7, 1.7, 300) + noise, 0, 1))


def _milliseconds(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return float(np.median(times)) * 1000
