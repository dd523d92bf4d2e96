"""Forecasts of the later points of real runs, next to those of existing methods, run by run.

The paper's runs: fitted on the points its authors fitted (from 1,450 GPU-hours on), scored on the
mean of the last three later points. Every other real curve: fitted on its first half, scored on the
mean of its last three points. The forecaster gets only the points; the baselines that need an R_0
get the paper's.

The prior in use was set from the numbers printed in the paper and from plain sense. A prior learned
from curves is shown next to it: for each run of the paper it is learned from the readings of its
other runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import curve_fit

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.baselines import paper_grid, power_law
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR
from testkit.forecast.curve_families import curve_families
from testkit.forecast.last_value import last_value
from testkit.forecast.learned_prior import learn_prior
from testkit.forecast.log_linear import log_linear
from testkit.forecast.real_curves import EXTENDED, PaperRun, other_runs, own_runs, paper_runs

FITTED = FitOptions(initial="fitted", prior=LAW_PRIOR)
DEFAULT = FitOptions(initial="fitted")
"""The forecast of `rollcast fit` with its default prior: the law and other shapes."""
FLAT = replace(
    LAW_PRIOR,
    log_exponent=(0.7, 1.0),
    log_midpoint=(-0.5, 1.6),
    drift=(0.0,),
    drift_weight=(1.0,),
    error_drift_weight=(1.0,),
    transient_weight=1e-9,
)
"""Nearly flat in B and C_mid, independent noise, no first phase: a plain grid posterior."""

LEVELS = (0.05, 0.5, 0.95)
SIMPLE: dict[str, Callable[[Curve], Any]] = {
    "last value": last_value,
    "power law": power_law,
    "log-linear": log_linear,
}
WIDE_ASYMPTOTES = np.linspace(0.05, 0.99, 95)
RELATIVE_MIDPOINTS: Array = np.geomspace(0.02, 10.0, 100)
"""The paper's grid for curves of other units and pass rates: A, and C_mid over the last compute of
the window."""


@dataclass(frozen=True, eq=False)
class Task:
    """Points to fit, and the outcome: `outcome` is the mean of `num_last` readings around
    `compute`.
    """

    name: str
    curve: Curve
    compute: float
    outcome: float
    initial: float
    num_last: int = 3


def paper_tasks(runs: dict[tuple[str, str], PaperRun]) -> list[tuple[Task, PaperRun]]:
    """The ten distinct runs with later points."""
    return [
        (
            Task(
                runs[key].name, runs[key].fitted_points(), *runs[key].outcome(), runs[key].initial
            ),
            runs[key],
        )
        for key in EXTENDED
    ]


def half_tasks(folder: Path, runs: dict[tuple[str, str], PaperRun]) -> list[Task]:
    """The first half of every other real curve."""
    rest = {
        run.name: run.curve()
        for key, run in runs.items()
        if key not in EXTENDED and run.identity == run.name and run.name != "ScaleRL"
    }
    return _first_halves(rest | other_runs(folder))


def _first_halves(curves: dict[str, Curve]) -> list[Task]:
    tasks = []
    for name, curve in curves.items():
        start, stop = float(curve.compute[0]), float(curve.compute[-1])
        first_half = curve.window(stop=start + 0.5 * (stop - start))
        if len(first_half) >= 5:
            end, outcome = float(curve.compute[-3:].mean()), float(curve.pass_rate[-3:].mean())
            initial = (
                float(first_half.pass_rate[0]) if first_half.initial is None else first_half.initial
            )
            tasks.append(Task(name, first_half, end, outcome, initial))
    return tasks


def paper_table(folder: Path) -> dict[str, Any]:
    """All methods on the paper's runs, with the learned prior next to the default one."""
    runs = paper_runs(folder)
    tasks = paper_tasks(runs)
    learned = {
        identity: replace(FITTED, prior=learn_prior(_others(runs, identity), FITTED))
        for identity in {run.identity for _, run in tasks}
    }
    rows = []
    for task, run in tasks:
        row = _row(task, paper_grid(task.curve, task.initial), FITTED)
        row["forecast, default prior"] = _forecast(task, DEFAULT)
        row["forecast, learned prior"] = _forecast(task, learned[run.identity])
        row["forecast, R_0 given"] = _forecast(task, replace(FITTED, initial=task.initial))
        row["forecast, flat prior"] = _forecast(
            task, FitOptions(initial=task.initial, prior=FLAT, robust=False)
        )
        rows.append(row)
    return {"rows": rows, "summary": _summary(rows)}


def half_table(folder: Path) -> dict[str, Any]:
    """The first half of every other real curve; the paper's grid and curve_fit take R_0 from the
    first reading.
    """
    rows: list[dict[str, Any]] = []
    runs = paper_runs(folder)
    for task in half_tasks(folder, runs):
        family = not task.name.startswith("qwen")
        learned = (
            replace(FITTED, prior=learn_prior(_others(runs, task.name), FITTED))
            if family
            else FITTED
        )
        rows.append(_half_row(task, FITTED, learned))
    groups = {"paper": [row for row in rows if not row["run"].startswith("qwen")]}
    for name in ("qwen2-7b", "qwen3-0.6b", "qwen3.5-4b"):
        groups[name] = [row for row in rows if row["run"].startswith(name)]
    return {
        "rows": rows,
        "summary": {name: _summary(group) for name, group in groups.items() if group},
    }


def own_table() -> dict[str, Any]:
    """The first half of Rollcast's own runs; the learned prior of a run is that
    of the other seeds.
    """
    curves, measured = own_runs(), FitOptions(prior=LAW_PRIOR)
    rows = [
        _half_row(
            task,
            measured,
            FitOptions(
                prior=learn_prior(
                    [other_curve for name, other_curve in curves.items() if name != task.name],
                    measured,
                )
            ),
        )
        for task in _first_halves(curves)
    ]
    return {"rows": rows, "summary": {"rollcast demo": _summary(rows)}}


def _half_row(task: Task, alone: FitOptions, learned: FitOptions) -> dict[str, Any]:
    midpoints: Array = RELATIVE_MIDPOINTS * task.curve.compute[-1]
    row = _row(task, paper_grid(task.curve, task.initial, WIDE_ASYMPTOTES, midpoints), alone)
    row["forecast, learned prior"] = _forecast(task, learned)
    row["verdict"] = fit(task.curve, alone).verdict.kind.value
    return row


def _others(runs: dict[tuple[str, str], PaperRun], identity: str) -> list[Curve]:
    """One reading of every other run."""
    chosen: dict[str, PaperRun] = {}
    for run in runs.values():
        if run.identity != identity:
            chosen.setdefault(run.name if ":" in run.name else run.identity, run)
    return [run.curve() for run in chosen.values()]


def _row(task: Task, grid: Any, options: FitOptions) -> dict[str, Any]:
    """What every table has of a run: signed errors, by method."""
    fitted = {name: method(task.curve) for name, method in SIMPLE.items()} | {"paper grid": grid}
    errors = {
        name: float(np.mean(law.pass_rate(task.compute))) - task.outcome
        for name, law in fitted.items()
    }
    return {
        "run": task.name,
        "points": len(task.curve),
        **errors,
        "curve_fit": _curve_fit(task),
        "curve families": _families(task),
        "forecast": _forecast(task, options),
    }


def _forecast(task: Task, options: FitOptions) -> dict[str, float]:
    forecast = fit(task.curve, options)
    error = forecast.reading_error / float(np.sqrt(task.num_last))
    low, median, high = forecast.predictive([task.compute], standard_error=error)[:, 0]
    return {
        "error": float(median) - task.outcome,
        "low": float(low) - task.outcome,
        "high": float(high) - task.outcome,
    }


def _families(task: Task) -> dict[str, float]:
    low, median, high = (
        curve_families(task.curve).quantiles([task.compute], LEVELS, task.num_last)[:, 0]
        - task.outcome
    )
    return {"error": float(median), "low": float(low), "high": float(high)}


def _curve_fit(task: Task) -> float:
    initial = task.initial

    def law(compute: Array, asymptote: float, exponent: float, log_midpoint: float) -> Array:
        return sigmoid(compute, initial, asymptote, exponent, np.exp(log_midpoint))

    middle = float(np.log(np.median(task.curve.compute)))
    start = (min(float(task.curve.pass_rate.max()) + 0.02, 0.99), 1.5, middle)
    bounds = ([initial, 0.05, middle - 10.0], [1.0, 20.0, middle + 10.0])
    parameters, _ = curve_fit(
        law, task.curve.compute, task.curve.pass_rate, p0=start, bounds=bounds, max_nfev=20_000
    )
    return float(law(np.array([task.compute]), *parameters)[0]) - task.outcome


def _summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    table = list(rows)
    summary: dict[str, dict[str, float]] = {}
    for method in table[0]:
        values = [row[method] for row in table]
        if method in ("run", "points", "verdict"):
            continue
        intervals = [value for value in values if isinstance(value, dict)]
        errors = np.abs([value["error"] if isinstance(value, dict) else value for value in values])
        summary[method] = {
            "median": float(np.median(errors)),
            "p90": float(np.quantile(errors, 0.9)),
            "mean": float(errors.mean()),
        }
        if intervals:
            summary[method]["covered"] = sum(
                value["low"] <= 0 <= value["high"] for value in intervals
            )
            summary[method]["of"] = len(intervals)
            summary[method]["width"] = float(
                np.mean([value["high"] - value["low"] for value in intervals])
            )
    return summary
