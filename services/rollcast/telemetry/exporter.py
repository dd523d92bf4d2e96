"""The process's own registry: metrics are made from their declaration in `names`, once."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rollcast.telemetry.names import Metric


class Exporter:
    """Values of one process of one run. Thread-safe, as prometheus_client is."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.registry = CollectorRegistry()
        self._families: dict[str, Gauge | Counter | Histogram] = {}

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        assert metric.kind == "gauge", metric.name
        child = self._child(metric, labels)
        assert isinstance(child, Gauge)
        child.set(value)

    def add(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        """Raise a counter."""
        assert metric.kind == "counter", metric.name
        child = self._child(metric, labels)
        assert isinstance(child, Counter)
        child.inc(amount)

    def observe(self, metric: Metric, value: float, count: int = 1, **labels: str) -> None:
        """Add `count` equal observations to a histogram."""
        assert metric.kind == "histogram", metric.name
        child = self._child(metric, labels)
        assert isinstance(child, Histogram)
        for _ in range(count):
            child.observe(value)

    def remove(self, metric: Metric, **labels: str) -> None:
        """Stop exposing one labelled series."""
        family = self._families.get(metric.name)
        if family is not None:
            family.remove(*self._label_values(metric, labels))

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)

    def _child(self, metric: Metric, labels: dict[str, str]) -> Gauge | Counter | Histogram:
        family = self._families.get(metric.name)
        if family is None:
            names = ("run", *metric.labels)
            if metric.kind == "gauge":
                family = Gauge(metric.name, metric.help, names, registry=self.registry)
            elif metric.kind == "counter":
                family = Counter(metric.name, metric.help, names, registry=self.registry)
            else:
                family = Histogram(metric.name, metric.help, names, buckets=metric.buckets, registry=self.registry)
            self._families[metric.name] = family
        return family.labels(*self._label_values(metric, labels))

    def _label_values(self, metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
        assert set(labels) == set(metric.labels), (metric.name, labels)
        return (self.run, *(labels[name] for name in metric.labels))
