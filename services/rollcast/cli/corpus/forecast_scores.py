"""How good forecasts of the ends of runs are, next to six simple methods.

Within a cell each figure is the mean over repositories. Over cells it is the mean of the cells, so
that a metric with many runs counts no more than another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.cli.corpus.protocol import QUANTILE_LEVELS, ForecasterAnswer
from rollcast.cli.corpus.votes import Tally, arithmetic_mean, bootstrap_interval, repository_means
from rollcast.cli.corpus.windows import SHARES, Window
from rollcast.config.errors import UserError
from rollcast.scaling.law.curve import Array

FORECASTER = "forecaster"
"""The judged one, among the names of the simple methods."""
DECISIONS = frozenset({"forecastable", "saturated", "no_learning"})
"""Verdicts with which a user may decide on a run."""
CALLED_FLAT = frozenset({"saturated", "no_learning"})
LOWEST, LOW, MEDIAN, HIGH, HIGHEST = range(len(QUANTILE_LEVELS))
"""Places of the quantiles."""
RATIO_DIGITS = 3
"""Figures are compared as they are printed, so that a reader can check each ratio."""


@dataclass(frozen=True, eq=False)
class ScoredForecast:
    """A forecast of the end of a window, and the simple ones.

    Attributes:
        quantiles: (5,) of the outcome: the mean of the quantiles of its readings.
    """

    window: Window
    quantiles: Array
    verdict: str | None
    simple: dict[str, float]

    @property
    def repository(self) -> str:
        return self.window.repository

    @property
    def is_decided(self) -> bool:
        return self.verdict in DECISIONS

    @property
    def is_called_flat(self) -> bool:
        return self.verdict in CALLED_FLAT

    @property
    def gain(self) -> float:
        return self.window.outcome - self.window.last

    def holds(self, low: int, high: int) -> bool:
        """Whether the outcome lies between two of the quantiles, by their places."""
        return bool(self.quantiles[low] <= self.window.outcome <= self.quantiles[high])

    def error(self, method: str) -> float:
        forecast = float(self.quantiles[MEDIAN]) if method == FORECASTER else self.simple[method]
        return abs(forecast - self.window.outcome)


@dataclass(frozen=True)
class CellScores:
    """Figures of one metric and share.

    Attributes:
        error: mean absolute error of the median, by method.
        pinball: mean loss over five quantiles, by method.
        error_over_best, pinball_over_best: of the judged forecaster, divided by the best simple
            method of this cell.
        in90, in50, width90: of the intervals of the judged forecaster.
        decisions: held by the 90 % interval, of those that were made.
        called_flat_wrong: gained more than 0.03, of those called saturated or not learning.
        flat_recognised: called saturated or not learning, of the flat ones.
    """

    cell: str
    is_from_half: bool
    num_windows: int
    num_repositories: int
    verdicts: dict[str, int]
    error: dict[str, float]
    pinball: dict[str, float]
    error_over_best: float
    pinball_over_best: float
    in90: float
    in50: float
    width90: float
    decisions: Tally
    called_flat_wrong: Tally
    flat_recognised: Tally


@dataclass(frozen=True)
class OverBest:
    """A loss divided by that of the simple method that is best over all cells."""

    ratio: float
    best_simple: str


@dataclass(frozen=True)
class ForecastScores:
    """Figures over all cells.

    Attributes:
        in90: share of 90 % intervals that hold the outcome, one vote for each repository.
        in90_low, in90_high: 90 % interval of this share by a bootstrap over repositories.
        decided_from_half, flat_recognised: of windows of half a run.
    """

    num_windows: int
    refused: list[str]
    pinball: OverBest
    error: OverBest
    in90: float
    in90_low: float
    in90_high: float
    decisions: Tally
    decided_from_half: Tally
    called_flat_wrong: Tally
    flat_recognised: Tally
    cells: list[CellScores]


def make_scored_forecast(
    window: Window, answer: ForecasterAnswer, simple: dict[str, float]
) -> ScoredForecast:
    """The forecast in an answer that is not a refusal."""
    return ScoredForecast(window, np.array(answer.quantiles).mean(axis=0), answer.verdict, simple)


def forecast_scores(forecasts: Sequence[ScoredForecast], refused: list[str]) -> ForecastScores:
    """Raises UserError: everything was refused, or no cell has two repositories."""
    if refused and not forecasts:
        raise UserError(f"--forecaster: every forecast was refused; the first one, {refused[0]}")
    names = sorted({forecast.window.cell for forecast in forecasts})
    by_cell = {
        name: [forecast for forecast in forecasts if forecast.window.cell == name] for name in names
    }
    # The simple methods learn the spread of their errors from the other repositories.
    cells = [
        _cell_scores(name, cell_forecasts)
        for name, cell_forecasts in by_cell.items()
        if len({forecast.repository for forecast in cell_forecasts}) > 1
    ]
    if not cells:
        raise UserError(
            "--corpus: no metric and share has forecasts of two repositories; add curves of "
            "another repository"
        )
    votes = repository_means(
        (forecast.repository for forecast in forecasts),
        (forecast.holds(LOWEST, HIGHEST) for forecast in forecasts),
    )
    low, high = bootstrap_interval(votes)
    half = [cell for cell in cells if cell.is_from_half]
    return ForecastScores(
        num_windows=len(forecasts),
        refused=refused,
        pinball=_over_best(cells, lambda cell: cell.pinball),
        error=_over_best(cells, lambda cell: cell.error),
        in90=round(arithmetic_mean(votes), RATIO_DIGITS),
        in90_low=round(low, RATIO_DIGITS),
        in90_high=round(high, RATIO_DIGITS),
        decisions=Tally.total(cell.decisions for cell in cells),
        decided_from_half=Tally(
            sum(cell.decisions.of for cell in half), sum(cell.num_windows for cell in half)
        ),
        called_flat_wrong=Tally.total(cell.called_flat_wrong for cell in cells),
        flat_recognised=Tally.total(cell.flat_recognised for cell in half),
        cells=cells,
    )


def pinball_loss(quantiles: Array, outcome: float) -> float:
    """Mean over the five levels of max(level * short, (level - 1) * short): what each quantile
    falls short by.
    """
    short = outcome - quantiles
    levels = np.array(QUANTILE_LEVELS)
    return float(np.maximum(levels * short, (levels - 1.0) * short).mean())


def error_quantiles(method: str, other_forecasts: Sequence[ScoredForecast]) -> Array:
    """(5,) quantiles of a simple method's errors in other repositories, each repository weighted
    alike.
    """
    counts = Counter(forecast.repository for forecast in other_forecasts)
    errors = np.array(
        [forecast.window.outcome - forecast.simple[method] for forecast in other_forecasts]
    )
    weights = np.array([1 / counts[forecast.repository] for forecast in other_forecasts])
    order = np.lexsort((weights, errors))
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.array(QUANTILE_LEVELS) * reached[-1])
    quantiles: Array = errors[order][np.minimum(places, errors.size - 1)]
    return quantiles


def _cell_scores(name: str, forecasts: Sequence[ScoredForecast]) -> CellScores:
    repositories = [forecast.repository for forecast in forecasts]

    error_digits = 4

    def mean_over_repositories(values: Iterable[float], digits: int = error_digits) -> float:
        return round(arithmetic_mean(repository_means(repositories, values)), digits)

    methods = (FORECASTER, *forecasts[0].simple)
    error = {
        method: mean_over_repositories(forecast.error(method) for forecast in forecasts)
        for method in methods
    }
    pinball_digits = 5
    pinball = {
        method: mean_over_repositories(_pinball_losses(method, forecasts), pinball_digits)
        for method in methods
    }
    # 0.03: pass rate: a run that gains more was wrongly called flat.
    return CellScores(
        cell=name,
        is_from_half=forecasts[0].window.share == SHARES[-1],
        num_windows=len(forecasts),
        num_repositories=len(set(repositories)),
        verdicts=dict(Counter(forecast.verdict or "none" for forecast in forecasts)),
        error=error,
        pinball=pinball,
        error_over_best=round(_ratios(error)[FORECASTER], RATIO_DIGITS),
        pinball_over_best=round(_ratios(pinball)[FORECASTER], RATIO_DIGITS),
        in90=mean_over_repositories(forecast.holds(LOWEST, HIGHEST) for forecast in forecasts),
        in50=mean_over_repositories(forecast.holds(LOW, HIGH) for forecast in forecasts),
        width90=mean_over_repositories(
            float(forecast.quantiles[HIGHEST] - forecast.quantiles[LOWEST])
            for forecast in forecasts
        ),
        decisions=Tally.count(
            forecast.holds(LOWEST, HIGHEST) for forecast in forecasts if forecast.is_decided
        ),
        called_flat_wrong=Tally.count(
            forecast.gain > 0.03 for forecast in forecasts if forecast.is_called_flat
        ),
        # Pass rate: a run is flat if its end differs by less from the last reading that was seen
        flat_recognised=Tally.count(
            forecast.is_called_flat for forecast in forecasts if abs(forecast.gain) < 0.01
        ),
    )


def _pinball_losses(method: str, forecasts: Sequence[ScoredForecast]) -> list[float]:
    """Loss of each forecast.

    The quantiles of a simple method are its forecast plus those of its errors in other
    repositories, within [0, 1]: sharp and honest, so that neither wide nor narrow intervals win
    against them.
    """
    if method == FORECASTER:
        return [pinball_loss(forecast.quantiles, forecast.window.outcome) for forecast in forecasts]
    errors = {
        repository: error_quantiles(
            method,
            [forecast for forecast in forecasts if forecast.repository != repository],
        )
        for repository in {forecast.repository for forecast in forecasts}
    }
    losses = []
    for forecast in forecasts:
        quantiles = np.clip(forecast.simple[method] + errors[forecast.repository], 0.0, 1.0)
        losses.append(pinball_loss(quantiles, forecast.window.outcome))
    return losses


def _over_best(
    cells: Sequence[CellScores], losses: Callable[[CellScores], dict[str, float]]
) -> OverBest:
    """Each loss is divided by that of the best simple method of its cell,
    then averaged over cells.
    """
    cell_ratios = [_ratios(losses(cell)) for cell in cells]
    means = {
        method: arithmetic_mean([ratios[method] for ratios in cell_ratios])
        for method in cell_ratios[0]
    }
    lowest_loss_ratio, best_method = min(
        (value, method) for method, value in means.items() if method != FORECASTER
    )
    return OverBest(round(means[FORECASTER] / lowest_loss_ratio, RATIO_DIGITS), best_method)


def _ratios(losses: dict[str, float]) -> dict[str, float]:
    """Each loss of a cell divided by that of its best simple method."""
    # Least loss in a ratio, so that a simple method may be exact
    floored = {method: max(value, 1e-5) for method, value in losses.items()}
    best = min(value for method, value in floored.items() if method != FORECASTER)
    return {method: value / best for method, value in floored.items()}
