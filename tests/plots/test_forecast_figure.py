"""The picture of a run answers where it ends: budget, level now, earlier forecasts, and nothing
that is not known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.run_forecast import QUANTILES, RunForecast, forecast_history
from rollcast.plots.earlier import forecasts_of_the_end
from rollcast.plots.forecast import forecast_figure
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Curve
from testkit.forecaster.page_states import page_states

NOW = 1_500.0
BUDGET = 4_000.0


@pytest.fixture(scope="module")
def run() -> RunForecast:
    points = [
        CurvePoint(
            run="math-8b",
            dataset="",
            incarnation=1,
            step=reading.step,
            pass_rate=reading.pass_rate,
            compute=reading.compute,
            standard_error=reading.standard_error,
            trained_tokens=None,
            samples=None,
            at=0.0,
        )
        for reading in page_states()["rising"].readings()
    ]  # fmt: skip
    return forecast_history(RunHistory("math-8b", points))


def texts(figure: Any) -> list[str]:
    """Every text of the picture."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_the_axis_ends_at_the_budget_which_is_marked(run: RunForecast) -> None:
    figure = forecast_figure(run, run.advice(BUDGET))
    axes = figure.axes[0]
    assert axes.get_xlim() == (0.0, BUDGET)
    drawn = [np.asarray(line.get_xdata(), dtype=float) for line in axes.lines]
    upright = [float(ends[0]) for ends in drawn if ends.size == 2 and np.ptp(ends) == 0]
    assert upright == pytest.approx([NOW, BUDGET])
    assert {"now, 1500 device-hours", "budget, 4000 device-hours"} <= set(texts(figure))
    assert not any("power law" in text for text in texts(figure))
    assumed = forecast_figure(run, run.advice())
    assert assumed.axes[0].get_xlim()[1] == pytest.approx(2 * NOW)
    assert "budget (assumed), 3000 device-hours" in texts(assumed)


def test_a_far_budget_has_a_logarithmic_axis_that_ends_there_as_well(run: RunForecast) -> None:
    axes = forecast_figure(run, run.advice(40_000.0)).axes[0]
    assert (axes.get_xscale(), axes.get_xlim()[1]) == ("log", 40_000.0)


def test_the_legend_covers_no_curve(run: RunForecast) -> None:
    figure = forecast_figure(run, run.advice(BUDGET))
    figure.canvas.draw()
    [legend] = figure.legends
    covered = legend.get_window_extent()
    for axes in figure.axes:
        assert axes.get_legend() is None
        assert not axes.get_window_extent().overlaps(covered)


def test_earlier_forecasts_are_those_of_the_evaluations_until_then(run: RunForecast) -> None:
    curve = run.forecast.curve
    found = forecasts_of_the_end(run, BUDGET)
    assert [forecast.share for forecast in found] == [0.25, 0.5, 0.75, 1.0]
    for forecast in found[:-1]:
        seen = curve.compute <= forecast.share * NOW
        error = None if curve.standard_error is None else curve.standard_error[seen]
        points = Curve.from_points(curve.compute[seen], curve.pass_rate[seen], error)
        started = replace(
            points,
            initial=curve.initial,
            initial_standard_error=curve.initial_standard_error,
            unit=curve.unit,
        )
        alone = fit(started)
        assert forecast.reading == pytest.approx(alone.predictive([BUDGET], QUANTILES)[:, 0])
    assert found[-1].reading == pytest.approx(run.reading([BUDGET])[:, 0])
    advice = run.advice(BUDGET)
    level = [text for text in texts(forecast_figure(run, advice)) if text.startswith("level now, ")]
    assert level == [f"level now, {advice.level:.3f}"]
    assert f"on the level now, {advice.level:.3f}" in advice.reason


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(VerdictKind.BROKEN, "A reason.", at=900.0),
        Verdict(VerdictKind.TOO_FEW, "A reason.", num_missing=3),
        Verdict(VerdictKind.REGIME_CHANGE, "A reason.", at=900.0, num_missing=2),
    ],
    ids=lambda verdict: str(verdict.kind),
)
def test_nothing_is_drawn_beyond_now_if_nothing_is_forecast(
    run: RunForecast, verdict: Verdict
) -> None:
    silent = replace(run, forecast=replace(run.forecast, verdict=verdict))
    for advice in (silent.advice(), silent.advice(BUDGET)):
        figure = forecast_figure(silent, advice)
        [axes] = figure.axes
        marked = [
            text
            for text in texts(figure)
            if text in ("peak, 900 device-hours", "change, 900 device-hours")
        ]
        assert len(marked) == (verdict.at is not None)
        assert len(axes.collections) == 1, "error bars alone: no band"
        drawn = np.concatenate([line.get_xdata() for line in axes.lines])
        assert set(drawn[drawn > 1.001 * NOW]) <= {advice.budget}
        assert axes.get_xlim()[1] == pytest.approx(1.02 * NOW if advice.is_assumed else BUDGET)
