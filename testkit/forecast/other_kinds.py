"""Forecasts of runs of other kinds than the law, next to existing methods: `other_shapes` draws
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from testkit.forecast.curve_families import curve_families
from testkit.forecast.extrapolation import LEVELS, SIMPLE
from testkit.forecast.other_shapes import CLASSES, draw_run

HORIZONS = (2.0, 10.0)


def other_kinds(num_runs: int) -> list[dict[str, Any]]:
    """Mean errors of each kind at 2 and 10 times the window, and how often 90 % intervals of the
    truth held it.
    """
    return [_measure_kind(kind, num_runs) for kind in CLASSES]


def _measure_kind(kind: str, num_runs: int) -> dict[str, Any]:
    errors: dict[str, list[list[float]]] = defaultdict(list)
    coverage: dict[str, list[list[bool]]] = defaultdict(list)
    verdicts = Counter[str]()
    for seed in range(num_runs):
        run = draw_run(kind, seed)
        curve = Curve.from_points(run.compute, run.pass_rate, unit="steps")
        truth = np.array([run.truth(at) for at in HORIZONS])
        forecast = fit(curve)
        intervals = {
            "forecast": forecast.predictive(HORIZONS, LEVELS, standard_error=0.0),
            "curve families": curve_families(curve).quantiles(HORIZONS, LEVELS),
        }
        for name, (low, median, high) in intervals.items():
            errors[name].append(np.abs(median - truth).tolist())
            coverage[name].append(((low <= truth) & (truth <= high)).tolist())
        for name, method in SIMPLE.items():
            errors[name].append(np.abs(method(curve).pass_rate(HORIZONS) - truth).tolist())
        verdicts[forecast.verdict.kind.value] += 1
    return {
        "kind": kind,
        "runs": num_runs,
        "held_90": {
            name: np.mean(run_coverage, axis=0).round(3).tolist()
            for name, run_coverage in coverage.items()
        },
        "mean_error": {
            name: np.mean(run_errors, axis=0).round(4).tolist()
            for name, run_errors in errors.items()
        },
        "verdicts": dict(verdicts),
    }
