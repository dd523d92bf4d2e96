"""Figures of forecasts against numbers that were computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.cli.corpus.forecast_scores import ScoredForecast, error_quantiles, forecast_scores
from rollcast.cli.corpus.windows import Window
from rollcast.config.errors import UserError
from tests.cli.corpus.small_corpus import curve


def forecast(
    repository: str,
    last: float,
    outcome: float,
    quantiles: list[float],
    verdict: str | None,
    share: float = 0.5,
) -> ScoredForecast:
    """A window of five readings of `last`, of a run whose last three readings are `outcome`."""
    readings = [last] * 7 + [outcome] * 3
    window = Window(curve("run", repository, readings), share, 5)
    return ScoredForecast(window, np.array(quantiles), verdict, {"last": last, "zero": 0.0})


HALF = [
    forecast("a", 0.25, 0.5, [0.125, 0.375, 0.4375, 0.5625, 0.75], "forecastable"),
    forecast("a", 0.25, 0.25, [0.25, 0.25, 0.25, 0.25, 0.25], "saturated"),
    forecast("b", 0.5, 0.5, [0.125, 0.25, 0.3125, 0.375, 0.4375], None),
]
"""Binary fractions, so that nothing is rounded."""


def test_one_cell_by_hand() -> None:
    scores = forecast_scores(HALF, ["x: refused"])
    [cell] = scores.cells
    # Five times the pinball losses of the forecaster: 0.109375 = 0.01875 + 0.03125 + 0.03125 +
    # 0.015625 + 0.0125, then 0, and 0.328125 = 0.01875 + 0.0625 + 0.09375 + 0.09375 + 0.059375.
    # "last" errs by 0.25, 0 and 0, "zero" by 0.5, 0.25 and 0.5. Each repository has the quantiles
    # of the other's errors: of "last" b has 0, 0, 0, 0.25, 0.25.
    forecaster = ((0.021875 + 0) / 2 + 0.065625) / 2
    last = ((0.125 + 0) / 2 + 0.015) / 2
    zero = ((0 + 0.125) / 2 + 0.04) / 2
    assert cell.pinball == pytest.approx(
        {"forecaster": forecaster, "last": last, "zero": zero}, abs=6e-6
    )
    assert cell.error == pytest.approx(
        {"forecaster": 0.109375, "last": 0.0625, "zero": 0.4375}, abs=6e-5
    )
    assert cell.pinball_over_best == pytest.approx(forecaster / last, abs=1e-3)
    assert cell.error_over_best == pytest.approx(1.75, abs=2e-3)
    assert (cell.in90, cell.in50, cell.width90) == (0.5, 0.5, 0.3125)
    assert (cell.num_windows, cell.num_repositories) == (3, 2)
    assert cell.verdicts == {"forecastable": 1, "saturated": 1, "none": 1}
    assert (scores.pinball.best_simple, scores.error.best_simple) == ("last", "last")
    assert scores.pinball.ratio == pytest.approx(forecaster / last, abs=1e-3)
    assert scores.error.ratio == pytest.approx(1.75, abs=2e-3)
    assert (scores.in90, scores.in90_low, scores.in90_high) == (0.5, 0.0, 1.0)
    counts = (
        scores.decisions,
        scores.decided_from_half,
        scores.flat_recognised,
        scores.called_flat_wrong,
    )
    assert list(map(str, counts)) == ["2 of 2", "2 of 3", "1 of 2", "0 of 1"]
    assert (scores.num_windows, scores.refused) == (3, ["x: refused"])


def test_decisions_that_fail_and_runs_wrongly_called_flat_are_counted() -> None:
    wrong = [
        forecast("a", 0.2, 0.4, [0.19, 0.2, 0.2, 0.2, 0.21], "no_learning"),
        forecast("b", 0.2, 0.22, [0.1, 0.2, 0.2, 0.2, 0.3], "saturated"),
        forecast("b", 0.2, 0.9, [0.1, 0.2, 0.2, 0.2, 0.3], "regime_change"),
    ]
    scores = forecast_scores(wrong, [])
    counts = (scores.decisions, scores.called_flat_wrong, scores.flat_recognised)
    assert list(map(str, counts)) == ["1 of 2", "1 of 2", "0 of 0"]


def test_every_cell_has_one_vote_and_only_half_counts_as_from_half() -> None:
    quarter = [
        forecast("a", 0.25, 0.5, [0.5] * 5, "forecastable", 0.25),
        forecast("b", 0.5, 0.5, [0.5] * 5, "saturated", 0.25),
    ]
    scores = forecast_scores([*HALF, *quarter], [])
    assert [cell.cell for cell in scores.cells] == ["heldout 0.25", "heldout 0.5"]
    # "last" is best in both cells, and the forecasts of the quarter are exact.
    assert scores.error.ratio == pytest.approx(1.75 / 2, abs=2e-3)
    assert (str(scores.decided_from_half), str(scores.decisions)) == ("2 of 3", "4 of 4")
    assert str(scores.flat_recognised) == "1 of 2"


def test_errors_of_each_repository_weigh_alike() -> None:
    others = [forecast("many", 0.2, 0.2 + 0.001 * n, [0.0] * 5, None) for n in range(30)]
    others.append(forecast("one", 0.2, 0.7, [0.0] * 5, None))
    others.append(forecast("two", 0.2, 0.9, [0.0] * 5, None))
    # Each has a third: 5 % of all are 4.5 of the thirty runs, 25 % are 22.5 of them.
    assert error_quantiles("last", others) == pytest.approx([0.004, 0.022, 0.5, 0.7, 0.7], abs=1e-9)


def test_one_repository_is_refused() -> None:
    with pytest.raises(UserError, match="no metric and share has forecasts of two repositories"):
        forecast_scores(HALF[:2], [])
    with pytest.raises(UserError, match="every forecast was refused; the first one, x: no idea"):
        forecast_scores([], ["x: no idea"])


def test_a_simple_method_that_is_exact_does_not_divide_by_zero() -> None:
    exact = [forecast(name, 0.5, 0.5, [0.4, 0.45, 0.5, 0.55, 0.6], None) for name in "ab"]
    scores = forecast_scores(exact, [])
    assert (scores.error.ratio, scores.error.best_simple) == (1.0, "last")
    assert scores.pinball.ratio > 1.0
