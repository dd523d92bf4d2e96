"""Real curves, from the folder that ROLLCAST_SHARED_DATA names; skipped where it is absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import VerdictKind
from testkit.forecast.extrapolation import FITTED, paper_tasks
from testkit.forecast.published import printed_fits
from testkit.forecast.real_curves import data_folder, other_runs, paper_runs, truncating_run

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def folder() -> Path:
    found = data_folder()
    if found is None:
        pytest.skip("ROLLCAST_SHARED_DATA names no folder with curves/")
    return found


def test_the_papers_procedure_reproduces_its_printed_fits(folder: Path) -> None:
    found = printed_fits(folder)
    assert found["asymptote_within_0.02"] >= 0.8
    assert found["exponent_within_0.25"] >= 0.5
    assert found["sum_of_squares_no_larger"] == "7 of 7"
    assert (found["fits"], found["distinct_curves"], len(found["skipped"])) == (21, 18, 3)


def test_later_points_of_the_papers_runs_are_forecast(folder: Path) -> None:
    errors, held, widths = [], 0, []
    for task, _ in paper_tasks(paper_runs(folder)):
        forecast = fit(task.curve, FITTED)
        error = forecast.reading_error / np.sqrt(task.num_last)
        low, median, high = forecast.predictive([task.compute], standard_error=error)[:, 0]
        errors.append(abs(median - task.outcome))
        held += bool(low <= task.outcome <= high)
        widths.append(high - low)
    assert np.median(errors) <= 0.009
    assert np.quantile(errors, 0.9) <= 0.023
    assert np.mean(errors) <= 0.011
    assert held >= 8
    assert np.mean(widths) <= 0.07


def test_runs_that_broke_are_told(folder: Path) -> None:
    assert fit(truncating_run(folder)).verdict.kind is VerdictKind.REGIME_CHANGE
    decaying = {
        name: curve for name, curve in other_runs(folder).items() if name.startswith("qwen3-0.6b")
    }
    assert len(decaying) == 5
    assert {name: fit(curve).verdict.kind for name, curve in decaying.items()} == dict.fromkeys(
        decaying, VerdictKind.BROKEN
    )


def test_runs_that_went_well_are_not_accused(folder: Path) -> None:
    broken = (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE)
    good = [curve for name, curve in other_runs(folder).items() if name.startswith("qwen3.5-4b")]
    good += [run.curve() for run in paper_runs(folder).values() if run.name != "DeepSeek-GRPO"]
    assert [kind for kind in (fit(curve).verdict.kind for curve in good) if kind in broken] == []
