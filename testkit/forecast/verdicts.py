"""Are verdicts right? Simulated shapes, and the real runs that broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR
from testkit.forecast.generators import SHAPES, simulate_shape
from testkit.forecast.real_curves import other_runs, paper_runs, truncating_run

BROKEN = (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE)
RIGHT = {
    "good": {VerdictKind.FORECASTABLE, VerdictKind.SATURATED, VerdictKind.TOO_EARLY},
    "collapse": set(BROKEN),
    "decline": {VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID},
    "regime_change": {VerdictKind.REGIME_CHANGE},
    "flat": {VerdictKind.TOO_EARLY, VerdictKind.SATURATED, VerdictKind.NO_LEARNING},
    "saturated": {VerdictKind.SATURATED},
}
"""A good run is judged right unless it is accused of a break; nothing can be forecast of a run that
learned nothing."""
OPTIONS = {"saturated": FitOptions(prior=LAW_PRIOR)}
"""The default weight of other shapes. By the law alone a flat top is the end; the default expects
some to rise again."""


def measure_shapes(num_runs: int) -> list[dict[str, Any]]:
    """`num_runs` of each shape."""
    rows = []
    for index, shape in enumerate(SHAPES):
        rng = np.random.default_rng([11, index])
        kinds = Counter(
            fit(simulate_shape(shape, rng), OPTIONS.get(shape)).verdict.kind
            for _ in range(num_runs)
        )
        right = sum(kinds[kind] for kind in RIGHT[shape]) / num_runs
        rows.append(
            {
                "shape": shape,
                "runs": num_runs,
                "right": right,
                "verdicts": {k.value: n for k, n in kinds.items()},
            }
        )
    return rows


def false_alarms(calibration: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Runs of each class of the calibration, all of them good, that are accused of a break; the
    worst class first.
    """
    rows = []
    for row in calibration:
        count = sum(row["verdicts"].get(kind.value, 0) for kind in BROKEN)
        rows.append(
            {
                "class": f"{row['generator']} {row['window']:g}",
                "runs": row["runs"],
                "false_alarms": count,
                "share": count / row["runs"],
            }
        )
    return sorted(rows, key=lambda row: -float(row["share"]))


def real(folder: Path) -> list[dict[str, str]]:
    """Whole curves of real runs: the verdict on each."""
    curves = other_runs(folder) | {"qwen2-7b-gpg training reward": truncating_run(folder)}
    curves |= {
        f"paper {run.name}": run.curve()
        for key, run in paper_runs(folder).items()
        if run.identity == run.name
    }
    rows = []
    for name, curve in curves.items():
        verdict = fit(curve).verdict
        rows.append({"run": name, "verdict": verdict.kind.value, "reason": verdict.reason})
    return rows
