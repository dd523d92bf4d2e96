"""The forecasts of every run as metrics on one page."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from rollcast.forecaster.run_forecast import QUANTILES, Outlook, RunForecast
from rollcast.scaling.forecast import VerdictKind
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter


class ForecastMetrics(Collector):
    """One exporter for each run; families of the same name are joined on the page."""

    def __init__(self, run: str) -> None:
        """`run`: under which what belongs to no run in particular is counted."""
        self._exporters = {run: Exporter(run)}
        self._own = self._exporters[run]
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def show(self, forecast: RunForecast, outlook: Outlook) -> None:
        """Set every gauge of one run; the sets of labels never grow."""
        if forecast.name not in self._exporters:
            self._exporters = {**self._exporters, forecast.name: Exporter(forecast.name)}
        exporter = self._exporters[forecast.name]
        law = forecast.forecast
        asymptote, headroom = law.asymptote(QUANTILES), law.headroom(QUANTILES)
        for index, quantile in enumerate(QUANTILES):
            label = f"{quantile:g}"
            exporter.set(names.FORECAST_ASYMPTOTE, float(asymptote[index]), quantile=label)
            exporter.set(names.FORECAST_HEADROOM, float(headroom[index]), quantile=label)
            for compute, value in zip(outlook.grid, outlook.band[index], strict=True):
                exporter.set(names.FORECAST_PASS_RATE, float(value), compute=f"{compute:g}", quantile=label)
        if forecast.end is not None and outlook.end is not None:
            exporter.set(names.FORECAST_END_DEVICE_HOURS, forecast.end)
            for quantile, value in zip(QUANTILES, outlook.end, strict=True):
                exporter.set(names.FORECAST_END, float(value), quantile=f"{quantile:g}")
        for kind in VerdictKind:
            exporter.set(names.FORECAST_VERDICT, float(kind is law.verdict.kind), verdict=str(kind))
        exporter.set(names.FORECAST_POINTS, len(forecast.evaluations))
        exporter.set(names.FORECAST_LOST_POINTS, forecast.num_lost)
        exporter.add(names.FORECAST_REFITS)

    def count_skipped(self, reason: str, count: int) -> None:
        if count:
            self._own.add(names.FORECAST_SKIPPED, count, reason=reason)

    def source_up(self, up: bool) -> None:
        self._own.set(names.FORECAST_SOURCE_UP, float(up))

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for exporter in self._exporters.values():
            for family in exporter.registry.collect():
                if family.name in families:
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        yield from families.values()
