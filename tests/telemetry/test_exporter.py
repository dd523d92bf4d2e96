"""What /metrics says, read back by prometheus_client's own parser and compared with its own histogram."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=20))
def test_many_equal_observations_equal_single_ones(observations: list[tuple[int, int]]) -> None:
    exporter = Exporter("r")
    registry = CollectorRegistry()
    metric = names.STALENESS
    reference = Histogram(metric.name, metric.help, ("run",), buckets=metric.buckets, registry=registry).labels("r")
    for value, count in observations:
        exporter.observe(metric, value, count=count)
        for _ in range(count):
            reference.observe(value)
    assert samples(exporter.render()) == samples(generate_latest(registry))


def test_gauges_counters_and_removal() -> None:
    exporter = Exporter("r")
    exporter.set(names.EVAL_PASS_RATE, 0.25, dataset="d", incarnation="1", step="3")
    exporter.add(names.TRAINER_WAIT, 1.5, **{"for": "batch"})
    exporter.add(names.TRAINER_WAIT, 1.0, **{"for": "batch"})
    read = samples(exporter.render())
    labels = (("dataset", "d"), ("incarnation", "1"), ("run", "r"), ("step", "3"))
    assert read["rollcast_eval_pass_rate", labels] == 0.25
    assert read["rollcast_trainer_wait_seconds_total", (("for", "batch"), ("run", "r"))] == 2.5
    exporter.remove(names.EVAL_PASS_RATE, dataset="d", incarnation="1", step="3")
    assert ("rollcast_eval_pass_rate", labels) not in samples(exporter.render())


def test_a_missing_label_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        Exporter("r").set(names.EVAL_PASS_RATE, 0.25)


def test_names_are_unique_and_every_unit_is_in_the_name() -> None:
    metrics = names.all_metrics()
    assert len({metric.name for metric in metrics}) == len(metrics) > 60
    for metric in metrics:
        assert metric.help
        assert metric.kind != "histogram" or metric.buckets
