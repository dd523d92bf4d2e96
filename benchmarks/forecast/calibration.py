"""Do intervals hold as often as they say? Simulated runs of three generators, by window class.

The truth is the law at 2 and 10 times the window's compute. The oracle is the same fit given the
noise of the run: its scale and its drift.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR
from testkit.forecast.generators import GENERATORS, WINDOWS, SimulatedRun, simulate

HORIZONS = (2.0, 10.0)
TOO_EARLY = VerdictKind.TOO_EARLY.value
ORACLE_RUNS = 300
"""Runs of each class that suffice for the oracle's mean width."""


def calibration(num_runs: int) -> list[dict[str, Any]]:
    """`num_runs` of each generator and window class: one row per class, shown on stderr as it is
    done.
    """
    rows = []
    for generator in GENERATORS:
        for window in WINDOWS:
            rows.append(_class(generator, window, num_runs))
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _class(generator: str, window: float, num_runs: int) -> dict[str, Any]:
    rng = np.random.default_rng([7, GENERATORS.index(generator), int(10 * window)])
    inner, outer, errors, widths, oracle_widths = [], [], [], [], []
    missed: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for index in range(num_runs):
        run = simulate(generator, window, rng)
        compute = np.array(HORIZONS) * run.curve.compute[-1]
        truth = run.truth.pass_rate(compute)
        forecast = fit(run.curve, FitOptions(prior=LAW_PRIOR))
        low, lower, median, upper, high = forecast.pass_rate(compute, (0.05, 0.25, 0.5, 0.75, 0.95))
        inner.append((lower <= truth) & (truth <= upper))
        outer.append((low <= truth) & (truth <= high))
        errors.append(np.abs(median - truth))
        widths.append(high - low)
        if index < ORACLE_RUNS:
            told = fit(run.curve, _oracle(run)).pass_rate(compute, (0.05, 0.95))
            oracle_widths.append(told[1] - told[0])
        bounds = forecast.asymptote((0.05, 0.95))
        verdicts[forecast.verdict.kind.value] += 1
        missed[forecast.verdict.kind.value] += not bounds[0] <= run.truth.asymptote <= bounds[1]
    return {
        "generator": generator,
        "window": window,
        "runs": num_runs,
        "covered_50": np.mean(inner, axis=0).round(4).tolist(),
        "covered_90": np.mean(outer, axis=0).round(4).tolist(),
        "median_error": np.median(errors, axis=0).round(5).tolist(),
        "width": np.mean(widths, axis=0).round(5).tolist(),
        "oracle_width": np.mean(oracle_widths, axis=0).round(5).tolist(),
        "asymptote_missed": missed.total() / num_runs,
        "asymptote_missed_too_early": missed[TOO_EARLY] / verdicts[TOO_EARLY]
        if verdicts[TOO_EARLY]
        else None,
        "asymptote_missed_by_verdict": {kind: missed[kind] for kind in verdicts},
        "verdicts": dict(verdicts),
    }


def _oracle(run: SimulatedRun) -> FitOptions:
    assert run.curve.standard_error is not None
    error = float(run.curve.standard_error[0])
    scale = float(np.log(np.hypot(run.white, run.drift) / error))
    return FitOptions(
        prior=replace(
            LAW_PRIOR,
            log_error_scale=(scale, 0.01),
            log_drifting_error_scale=(scale, 0.01),
            drift=(run.drift / run.white,),
            error_drift_weight=(1.0,),
        )
    )
