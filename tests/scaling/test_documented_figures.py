"""The tables of docs/forecast-measured.md are those of the last results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.forecast.tables import run_by_run

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "benchmarks" / "results" / "forecast.json").read_text())["figures"]
DOCUMENT = (ROOT / "docs" / "forecast-measured.md").read_text()


@pytest.mark.parametrize(
    "part", ["extrapolation.paper", "extrapolation.halves", "extrapolation.own"]
)
def test_the_table_run_by_run_has_the_measured_errors(part: str) -> None:
    """`python -m benchmarks.forecast --run-by-run` prints it."""
    rows = FIGURES[part]["rows"]
    for line, row in zip(run_by_run(rows).splitlines()[2:], rows, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert (cells[0], cells[1]) == (row["run"], str(row["points"]))
        assert float(cells[2]) == pytest.approx(row["last value"], abs=6e-4)
        alone = row["forecast"]
        assert float(cells[-2].split()[0]) == pytest.approx(alone["error"], abs=6e-4)
        assert cells[-2].endswith("*") == (alone["low"] > 0 or alone["high"] < 0)


def test_every_baseline_has_a_row_with_its_figures() -> None:
    summary = FIGURES["extrapolation.paper"]["summary"]
    for method, words in (
        ("last value", "last value"),
        ("power law", "power law"),
        ("log-linear", "log-linear, R_0"),
    ):
        row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| {words}"))
        figures = [float(cell) for cell in row.split("|")[2:5]]
        assert figures == pytest.approx(
            [summary[method][name] for name in ("median", "p90", "mean")], abs=6e-4
        )
