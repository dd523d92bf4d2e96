"""The forecasts of every run as metrics on one page, written at each request.

A hundred runs are 23,000 series: as gauges set at every refit they would cost more time and memory
than the numbers.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from rollcast.curves.amounts import bare
from rollcast.curves.answer import LawAnswer, law_of_run
from rollcast.curves.columns.units import GPU_HOURS
from rollcast.curves.run_forecast import QUANTILES, ForecastSummary, RunForecast
from rollcast.forecaster.surprise import Surprise
from rollcast.scaling.decisions.advice import Advice, AdviceKind
from rollcast.scaling.decisions.forecast import VerdictKind
from rollcast.scaling.law.curve import DEVICE_HOURS
from rollcast.telemetry import forecaster_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.metric import Metric

_QUANTILE_LABELS = tuple(f"{quantile:g}" for quantile in QUANTILES)
_DEVICE_HOURS = (DEVICE_HOURS, GPU_HOURS)
"""Units of compute that the metrics in device-hours take; of others they are absent."""


@dataclass(frozen=True, eq=False)
class _RunMetrics:
    forecast: RunForecast
    law: LawAnswer | None
    advice: Advice
    outlook: ForecastSummary
    surprise: Surprise | None
    refits: int

    def samples(self) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
        """Metric, values of its labels, value; the sets of labels never grow, as the grid never
        changes.
        """
        forecast = self.forecast
        outlook = self.outlook
        grid = [f"{compute:g}" for compute in outlook.grid]
        yield forecaster_metrics.FORECAST_DESCRIBED, (), float(self.law is not None)
        if self.law is not None:
            for metric, quantiles in (
                (forecaster_metrics.FORECAST_ASYMPTOTE, self.law.asymptote),
                (forecaster_metrics.FORECAST_HEADROOM, self.law.headroom),
            ):
                for quantile, value in zip(_QUANTILE_LABELS, bare(quantiles), strict=True):
                    yield metric, (quantile,), value
        for index, quantile in enumerate(_QUANTILE_LABELS):
            if outlook.end is not None:
                yield forecaster_metrics.FORECAST_END, (quantile,), float(outlook.end[index])
            for compute, value in zip(grid, outlook.band[index].tolist(), strict=True):
                yield forecaster_metrics.FORECAST_PASS_RATE, (compute, quantile), value
        if forecast.end is not None and forecast.unit in _DEVICE_HOURS:
            yield forecaster_metrics.FORECAST_END_DEVICE_HOURS, (), forecast.end
        for kind in VerdictKind:
            yield (
                forecaster_metrics.FORECAST_VERDICT,
                (str(kind),),
                float(kind is forecast.forecast.verdict.kind),
            )
        yield from _advice(self.advice, forecast.unit)
        if self.surprise is not None:
            for quantile, value in zip(_QUANTILE_LABELS, self.surprise.earlier, strict=True):
                yield forecaster_metrics.FORECAST_EARLIER, (quantile,), value
            yield forecaster_metrics.FORECAST_MISSED, (), self.surprise.num_missed
        yield forecaster_metrics.FORECAST_POINTS, (), len(forecast.evaluations)
        yield forecaster_metrics.FORECAST_LOST_POINTS, (), forecast.num_lost
        yield forecaster_metrics.FORECAST_INCOMPLETE_POINTS, (), forecast.num_incomplete
        yield forecaster_metrics.FORECAST_REFITS, (), self.refits


def _advice(advice: Advice, unit: str) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    for kind in AdviceKind:
        yield forecaster_metrics.ADVICE, (str(kind),), float(kind is advice.kind)
    yield forecaster_metrics.ADVICE_EVALUATIONS, (), advice.evaluations
    if advice.chance is not None:
        yield forecaster_metrics.ADVICE_CHANCE, (), advice.chance
    for name, stretch in (("soon", advice.soon), ("rest", advice.rest)):
        if unit in _DEVICE_HOURS:
            yield forecaster_metrics.ADVICE_DEVICE_HOURS, (name,), stretch.compute
        for quantile, gain in zip(("0.05", "0.5", "0.95"), stretch.gain or (), strict=False):
            yield forecaster_metrics.ADVICE_GAIN, (name, quantile), gain


class ForecastMetrics(Collector):
    """The newest forecast of each run, and what the service counts."""

    def __init__(self, run: str) -> None:
        """`run`: under which what belongs to no run in particular is counted."""
        self._service_metrics = Exporter(run)
        self._metrics_by_run: dict[str, _RunMetrics] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def show(
        self, forecast: RunForecast, outlook: ForecastSummary, surprise: Surprise | None
    ) -> None:
        """Take the place of the run's last forecast."""
        previous_metrics = self._metrics_by_run.get(forecast.name)
        refits = 1 if previous_metrics is None else previous_metrics.refits + 1
        run_metrics = _RunMetrics(
            forecast, law_of_run(forecast), forecast.advice(), outlook, surprise, refits
        )
        self._metrics_by_run = {**self._metrics_by_run, forecast.name: run_metrics}

    def forget(self, names: Collection[str]) -> None:
        kept_metrics = (item for item in self._metrics_by_run.items() if item[0] not in names)
        self._metrics_by_run = dict(kept_metrics)

    def count_skipped(self, reason: str, count: int) -> None:
        if count:
            self._service_metrics.add(forecaster_metrics.FORECAST_SKIPPED, count, reason=reason)

    def source_up(self, up: bool) -> None:
        self._service_metrics.set(forecaster_metrics.FORECAST_SOURCE_UP, float(up))

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        yield from self._service_metrics.registry.collect()
        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, run_metrics in self._metrics_by_run.items():
            for metric, labels, value in run_metrics.samples():
                if metric not in families:
                    families[metric] = _family(metric)
                families[metric].add_metric((name, *labels), value)
        yield from families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=("run", *metric.labels))
