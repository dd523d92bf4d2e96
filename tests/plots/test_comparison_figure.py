"""The second picture of `compare` shows progress that a reader can check by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rollcast.cli.run_report import middle_law, run_report
from rollcast.plots import comparison
from rollcast.plots.figure import look_of_run, new_figure
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve, sigmoid


def test_progress_is_gain_made_over_gain_still_to_make() -> None:
    compute = np.geomspace(1.0, 40.0, 24)
    forecast = fit(Curve.from_points(compute, sigmoid(compute, 0.2, 0.7, 1.7, 8.0), name="a"))
    law = middle_law(forecast)
    axes = new_figure((4, 4)).add_subplot()
    comparison._draw_progress(axes, run_report(forecast, law), "black", "o")
    points, line, half_way = axes.lines
    rates = np.interp(points.get_xdata(), compute, forecast.curve.pass_rate)
    assert points.get_ydata() == pytest.approx((rates - law.initial) / (law.asymptote - rates))
    # The law itself: 1 where half of the gain is made, and a straight line of slope B in the two
    # logarithms.
    assert np.interp(law.midpoint, line.get_xdata(), line.get_ydata()) == pytest.approx(
        1.0, abs=0.02
    )
    slopes = np.diff(np.log(line.get_ydata())) / np.diff(np.log(line.get_xdata()))
    assert slopes == pytest.approx(np.full(slopes.size, law.exponent))
    assert half_way.get_ydata()[0] == 1.0


def test_runs_differ_in_colour_and_shape_together() -> None:
    looks = [look_of_run(number) for number in range(24)]
    assert len(set(looks)) == 24
    # Without colour, neighbours still differ.
    assert all(one[1] != two[1] for one, two in pairwise(looks))


def test_the_picture_is_written(tmp_path: Path) -> None:
    compute = np.geomspace(1.0, 40.0, 24)
    forecasts = [
        fit(Curve.from_points(compute, sigmoid(compute, 0.2, top, 1.7, 8.0), name=f"to {top}"))
        for top in (0.6, 0.7)
    ]
    answer = {"runs": [run_report(one, middle_law(one)) for one in forecasts]}
    comparison.draw_comparison(forecasts, answer, tmp_path / "compare.svg")
    drawing = (tmp_path / "compare.svg").read_text()
    assert "F =" not in drawing
    assert "log_{10}" not in drawing
