"""The process's own registry: metrics are made from their declaration in `names`, once."""

import threading
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rollcast.telemetry.metric import Metric


class Exporter:
    """Values of one process of one run. Thread-safe."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.registry = CollectorRegistry()
        self._families: dict[str, Gauge | Counter] = {}
        self._making = threading.Lock()  # two threads may create a metric at the same time
        self._histograms = WeightedHistograms()
        self.registry.register(self._histograms)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        child = self._child(metric, labels)
        assert isinstance(child, Gauge), metric.name
        child.set(value)

    def add(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Raise a counter."""
        child = self._child(metric, labels)
        assert isinstance(child, Counter), metric.name
        child.inc(amount)

    def observe(self, metric: Metric, value: float, count: int = 1, **labels: str) -> None:
        """Add `count` equal observations to a histogram."""
        assert metric.kind == "histogram", metric.name
        self._histograms.observe(metric, self._label_values(metric, labels), value, count)

    def remove(self, metric: Metric, **labels: str) -> None:
        """Stop exposing one labelled series."""
        family = self._families.get(metric.name)
        if family is not None:
            family.remove(*self._label_values(metric, labels))

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)

    def _child(self, metric: Metric, labels: dict[str, str]) -> Gauge | Counter:
        with self._making:
            family = self._families.get(metric.name)
            if family is None:
                make = Gauge if metric.kind == "gauge" else Counter
                family = make(
                    metric.name, metric.help, ("run", *metric.labels), registry=self.registry
                )
                self._families[metric.name] = family
        return family.labels(*self._label_values(metric, labels))

    def _label_values(self, metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
        assert set(labels) == set(metric.labels), (metric.name, labels)
        return (self.run, *(labels[name] for name in metric.labels))


class WeightedHistograms(Collector):
    """Histograms that take many equal observations in one call: a batch has millions of tokens of
    one staleness.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Metric, dict[tuple[str, ...], tuple[list[int], float]]] = {}

    def observe(
        self, metric: Metric, label_values: tuple[str, ...], value: float, count: int
    ) -> None:
        """Add `count` observations of `value`."""
        with self._lock:
            series = self._counts.setdefault(metric, {})
            counts, total = series.get(label_values, ([0] * (len(metric.buckets) + 1), 0.0))
            counts[bisect_left(metric.buckets, value)] += count
            series[label_values] = (counts, total + value * count)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield every histogram with cumulative buckets."""
        with self._lock:
            for metric, series in self._counts.items():
                family = HistogramMetricFamily(
                    metric.name, metric.help, labels=("run", *metric.labels)
                )
                for label_values, (counts, total) in series.items():
                    cumulative = 0
                    buckets = []
                    for bound, count in zip((*metric.buckets, float("inf")), counts, strict=True):
                        cumulative += count
                        buckets.append((floatToGoString(bound), cumulative))  # type: ignore[no-untyped-call]
                    family.add_metric(label_values, buckets, total)
                yield family
