"""Do we reproduce the printed fits with the paper's own procedure, and its log-linear variant on
simulated points?
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rollcast.scaling.law.baselines import paper_grid, power_law
from rollcast.scaling.law.curve import Curve, sigmoid
from testkit.forecast.log_linear import log_linear
from testkit.forecast.real_curves import PaperRun, paper_runs, published_fits

SMALL_MIDPOINTS = np.linspace(100, 4_000, 100)
LARGE_MIDPOINTS = np.linspace(0, 12_000, 100)[1:]
"""The grids on which the printed C_mid lie."""
FIGURES = {
    "Fig2": ("fig2",),
    "LOO table": ("fig_loo1",),
    "Table 1": ("merged", "fig_size", "fig_tasks_math", "fig_tasks_code"),
    "Fig5a submission": ("fig_loss",),
    "Fig5a arXiv": ("fig_loss",),
    "Fig6a": ("fig_zv",),
}
"""Ranges of compute in which a printed fit's points were read."""
LONG_RUN = ("fig1a", "ScaleRL-bs2048-100k")
REACH = 1.35
"""A window is spanned by points that begin before its start times this factor and end after its end
divided by it."""


def printed_fits(folder: Path) -> dict[str, Any]:
    """The paper's grid with R_0 = 0.40 on the points of each printed fit, one row per fit.

    Printed fits of windows that the points do not span are left out and named: cut to other
    windows, the same points would be fitted again.
    """
    runs = paper_runs(folder)
    rows, skipped, curves = [], [], set()
    for printed in published_fits(folder):
        run, window = _points(runs, printed)
        if run is None or not printed["B"]:
            continue
        curve = run.curve(*window) if window else run.fitted_points()
        if window and not _spans(curve, window):
            skipped.append(_skip_note(printed["where"], curve))
            continue
        curves.add((curve.compute.tobytes(), curve.pass_rate.tobytes()))
        large = "bs2048" in run.name or "Scout" in run.name
        our_fit = paper_grid(
            curve, run.initial, midpoints=LARGE_MIDPOINTS if large else SMALL_MIDPOINTS
        )
        row: dict[str, Any] = {
            "where": printed["where"],
            "run": printed["run"],
            "asymptote": (float(printed["A"]), our_fit.asymptote),
            "exponent": (float(printed["B"]), our_fit.exponent),
            "midpoint": (float(printed["C_mid"] or "nan"), our_fit.midpoint),
        }
        if printed["C_mid"]:
            printed_rates = sigmoid(
                curve.compute,
                run.initial,
                float(printed["A"]),
                float(printed["B"]),
                float(printed["C_mid"]),
            )
            row["sum_of_squares"] = (
                float(np.sum((curve.pass_rate - printed_rates) ** 2)),
                float(np.sum((curve.pass_rate - our_fit.pass_rate(curve.compute)) ** 2)),
            )
        rows.append(row)
    with_midpoint = [row for row in rows if "sum_of_squares" in row]
    return {
        "fits": len(rows),
        "distinct_curves": len(curves),
        "skipped": skipped,
        "asymptote_within_0.02": float(
            np.mean([abs(np.subtract(*row["asymptote"])) <= 0.0201 for row in rows])
        ),
        "exponent_within_0.25": float(
            np.mean([abs(np.subtract(*row["exponent"])) <= 0.25 for row in rows])
        ),
        "sum_of_squares_no_larger": f"{sum(r['sum_of_squares'][1] <= r['sum_of_squares'][0] for r in with_midpoint)}"  # noqa: E501
        f" of {len(with_midpoint)}",
        "rows": rows,
    }


def power_law_windows(folder: Path) -> dict[str, float | str]:
    """A of the power law on the 100k run from 1.5k and 5k to 50k (A.4 prints 1.0 and 0.74) where
    points span that.
    """
    run = paper_runs(folder)[LONG_RUN]
    figures: dict[str, float | str] = {}
    for window in ((1_500.0, 50_000.0), (5_000.0, 50_000.0)):
        name, curve = f"{window[0]:g}-{window[1]:g}", run.curve(*window)
        figures[name] = (
            power_law(curve).asymptote if _spans(curve, window) else _skip_note(name, curve)
        )
    return figures


def simulated_log_linear(num_runs: int = 200) -> dict[str, float]:
    """A = 0.80, B = 1.5, C_mid = 5000, 500 to 30,000, 1 % noise: share of runs within 0.05 of A and
    0.02 of R(100k).
    """
    compute = np.linspace(500, 30_000, 60)
    law = sigmoid(compute, 0.0, 0.8, 1.5, 5_000)
    truth = float(sigmoid(100_000.0, 0.0, 0.8, 1.5, 5_000))
    asymptote_error, end_error, slopes = [], [], []
    for seed in range(num_runs):
        noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(60)
        fitted_law = log_linear(Curve.from_points(compute, law * noise))
        asymptote_error.append(abs(fitted_law.asymptote - 0.8))
        end_error.append(abs(float(fitted_law.pass_rate(100_000.0)) - truth))
        slopes.append(fitted_law.slope)
    return {
        "asymptote_within_0.05": float(np.mean(np.array(asymptote_error) <= 0.05)),
        "end_within_0.02": float(np.mean(np.array(end_error) <= 0.02)),
        "median_slope": float(np.median(slopes)),
    }


def _spans(curve: Curve, window: tuple[float, float]) -> bool:
    return bool(curve.compute[0] <= REACH * window[0] and REACH * curve.compute[-1] >= window[1])


def _skip_note(name: str, curve: Curve) -> str:
    return (
        f"skipped: {name}, the points span only {curve.compute[0]:.0f} to {curve.compute[-1]:.0f} "
        "GPU-hours"
    )


def _points(
    runs: dict[tuple[str, str], PaperRun], printed: dict[str, str]
) -> tuple[PaperRun | None, tuple[float, float] | None]:
    if printed["where"].startswith("A.7 window"):
        start, stop = printed["where"].removeprefix("A.7 window ").split("-")
        return runs[LONG_RUN], (_hours(start), _hours(stop))
    for figure in FIGURES.get(printed["where"], ()):
        if (figure, printed["run"]) in runs:
            return runs[figure, printed["run"]], None
    return None, None


def _hours(text: str) -> float:
    return max(float(text.removesuffix("k")) * (1_000 if text.endswith("k") else 1), 1.0)
