"""A forecast of a run, as the terminal shows it: read from the forecaster's page, or made here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollcast.config.errors import UserError
from rollcast.telemetry import forecaster_metrics
from rollcast.telemetry.metric import Metric

if TYPE_CHECKING:
    from rollcast.config.run_end import Budget
    from rollcast.curves.run_forecast import RunForecast

Page = dict[str, list[tuple[dict[str, str], float]]]
"""Metric name -> (labels, value) of each series."""
Quantiles = tuple[float, float, float]
"""5 %, 50 %, 95 %."""
_WANTED = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True)
class AdviceReading:
    """Advice on the rest of the budget."""

    kind: str
    """stop, continue or wait."""
    evaluations: int
    """Compute to wait for; 0 for stop and continue."""
    chance: float | None
    """Probability that the rest of the run gains the required amount; None if unknown."""
    gain: Quantiles | None
    """Gain in pass rate of the whole rest."""
    is_assumed: bool = False
    """The run is over: its rest would be as much compute again."""
    end_reason: str | None = None
    """Why `stop_when` ended the run; None = it did not."""
    best_checkpoint: str | None = None
    """The sentence on the best checkpoint; None if the run neither broke nor was ended by
    `stop_when`, or if that is not known."""
    headline: str | None = None
    """The first sentence of `fit`, such as "Continue for 1 more evaluation". None = only metrics
    are known."""

    def sentence(self) -> str:
        """One line, in the words of `fit` and the page."""
        if self.end_reason is not None:
            best = "" if self.best_checkpoint is None else f". {self.best_checkpoint}"
            return f"{self.kind}: `stop_when` ended the run: {self.end_reason}{best}"
        if self.best_checkpoint is not None:
            return f"{self.kind}: the run is broken. {self.best_checkpoint}"
        if self.headline is not None:
            action = self.headline[0].lower() + self.headline[1:]
        elif self.kind == "wait":
            action = (
                f"wait for {self.evaluations} more evaluation{'' if self.evaluations == 1 else 's'}"
            )
        else:
            action = self.kind
        gain = ""
        if self.gain is not None:
            low, median, high = self.gain
            rest = "as much compute again" if self.is_assumed else "the rest"
            gain = f"{rest} gains {median:z.3f} [{low:z.3f}, {high:z.3f}]"
        chance = "" if self.chance is None else f"worth it with {100 * self.chance:.0f} %"
        reasons = ", ".join(filter(None, (gain, chance)))
        return f"{action}: {reasons}" if reasons else action


@dataclass(frozen=True, slots=True)
class ForecastReading:
    """The newest forecast of a run."""

    verdict: str
    asymptote: Quantiles | None
    """None if no law describes the curve."""
    end: Quantiles | None
    """Forecast reading of an evaluation at the end of the budget."""
    end_device_hours: float | None
    num_points: int
    """Evaluations it was made from, the one at step 0 included."""
    band: tuple[tuple[float, float, float, float], ...] = ()
    """Device-hours and the quantiles of what an evaluation there reads, by device-hours."""
    advice: AdviceReading | None = None

    @property
    def verdict_in_words(self) -> str:
        return self.verdict.replace("_", " ")


def forecast_on_page(page: Page) -> ForecastReading | None:
    """None while there is no forecast of the run on the forecaster's page."""
    verdict = _in_force(page, forecaster_metrics.FORECAST_VERDICT, "verdict")
    if verdict is None:
        return None
    return ForecastReading(
        verdict=verdict,
        asymptote=_quantiles(page, forecaster_metrics.FORECAST_ASYMPTOTE),
        end=_quantiles(page, forecaster_metrics.FORECAST_END),
        end_device_hours=first_value(page, forecaster_metrics.FORECAST_END_DEVICE_HOURS),
        num_points=int(first_value(page, forecaster_metrics.FORECAST_POINTS) or 0),
        band=_band(page),
        advice=_advice(page),
    )


def forecast_here(run: RunForecast, end: float | None) -> ForecastReading:
    """The reading of a forecast made in this process.

    `end`: device-hours at which the budget ends, if it does.
    """
    from rollcast.curves.amounts import bare
    from rollcast.curves.answer import law_of_run
    from rollcast.curves.run_forecast import metric_grid

    law = law_of_run(run, _WANTED)
    advice = run.advice() if end in (None, run.end) else run.advice(end)
    grid = metric_grid(run)
    computes = [*grid, end] if end is not None and end > run.newest.compute else list(grid)
    band = []
    if run.has_forecast:
        readings = run.reading(computes, _WANTED)
        band = [
            (compute, *map(float, readings[:, index])) for index, compute in enumerate(computes)
        ]
    return ForecastReading(
        verdict=str(run.forecast.verdict.kind),
        asymptote=None if law is None else _three(bare(law.asymptote)),
        end=_three(band[-1][1:]) if len(band) > len(grid) else None,
        end_device_hours=end,
        num_points=len(run.evaluations),
        band=tuple(sorted((at, low, middle, high) for at, low, middle, high in band)),
        advice=AdviceReading(
            str(advice.kind),
            advice.evaluations,
            advice.chance,
            advice.rest.gain,
            advice.is_assumed,
            run.end_reason,
            run.checkpoint_in_words,
            advice.headline,
        ),
    )


def forecast_of_folder(run_folder: Path, budget: Budget) -> ForecastReading | None:
    """The forecast of the folder's evaluations, as `fit` makes it; None before the first step is
    evaluated.
    """
    from rollcast.curves.run_forecast import RunBudget, forecast_history
    from rollcast.curves.sources.run_folder import history_of_folder

    try:
        history, _, _ = history_of_folder(run_folder, None)
    except UserError:
        return None
    rest = RunBudget(budget.steps, budget.device_hours).rest_after(history.evaluations)
    return forecast_here(forecast_history(history), rest.end(history.evaluations))


def first_value(page: Page, metric: Metric, **labels: str) -> float | None:
    """The value of the first series with these labels."""
    for series_labels, value in page.get(metric.name, []):
        if labels.items() <= series_labels.items():
            return value
    return None


def _three(values: object) -> Quantiles:
    low, middle, high = (float(value) for value in values)  # type: ignore[attr-defined]
    return low, middle, high


def _in_force(page: Page, metric: Metric, label: str) -> str | None:
    return next(
        (labels.get(label, "") for labels, value in page.get(metric.name, []) if value == 1), None
    )


def _quantiles(page: Page, metric: Metric, **labels: str) -> Quantiles | None:
    series = page.get(metric.name, [])
    quantile_values = {
        series_labels.get("quantile"): value
        for series_labels, value in series
        if labels.items() <= series_labels.items()
    }
    try:
        return quantile_values["0.05"], quantile_values["0.5"], quantile_values["0.95"]
    except KeyError:
        return None


def _band(page: Page) -> tuple[tuple[float, float, float, float], ...]:
    computes = {
        labels.get("compute", "nan")
        for labels, _ in page.get(forecaster_metrics.FORECAST_PASS_RATE.name, [])
    }
    quantiles_by_compute = {
        at: _quantiles(page, forecaster_metrics.FORECAST_PASS_RATE, compute=at)
        for at in sorted(computes, key=float)
    }
    return tuple(
        (float(at), *quantiles)
        for at, quantiles in quantiles_by_compute.items()
        if quantiles is not None
    )


def _advice(page: Page) -> AdviceReading | None:
    kind = _in_force(page, forecaster_metrics.ADVICE, "advice")
    if kind is None:
        return None
    return AdviceReading(
        kind=kind,
        evaluations=int(first_value(page, forecaster_metrics.ADVICE_EVALUATIONS) or 0),
        chance=first_value(page, forecaster_metrics.ADVICE_CHANCE),
        gain=_quantiles(page, forecaster_metrics.ADVICE_GAIN, stretch="rest"),
    )
