"""What /metrics says, read back by prometheus_client's own parser and compared with its own
histogram.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rollcast import telemetry
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.all_metrics import MODULES, all_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.metric import Metric


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50)), min_size=1, max_size=20))
def test_many_equal_observations_equal_single_ones(observations: list[tuple[int, int]]) -> None:
    exporter = Exporter("r")
    registry = CollectorRegistry()
    metric = trainer_metrics.STALENESS
    reference = Histogram(
        metric.name, metric.help, ("run",), buckets=metric.buckets, registry=registry
    ).labels("r")
    for value, count in observations:
        exporter.observe(metric, value, count=count)
        for _ in range(count):
            reference.observe(value)
    assert samples(exporter.render()) == samples(generate_latest(registry))


def test_gauges_counters_and_removal() -> None:
    exporter = Exporter("r")
    exporter.set(evaluation_metrics.EVAL_PASS_RATE, 0.25, dataset="d", incarnation="1", step="3")
    exporter.add(trainer_metrics.TRAINER_WAIT, 1.5, **{"for": "batch"})
    exporter.add(trainer_metrics.TRAINER_WAIT, 1.0, **{"for": "batch"})
    read = samples(exporter.render())
    labels = (("dataset", "d"), ("incarnation", "1"), ("run", "r"), ("step", "3"))
    assert read["rollcast_eval_pass_rate", labels] == 0.25
    assert read["rollcast_trainer_wait_seconds_total", (("for", "batch"), ("run", "r"))] == 2.5
    exporter.remove(evaluation_metrics.EVAL_PASS_RATE, dataset="d", incarnation="1", step="3")
    assert ("rollcast_eval_pass_rate", labels) not in samples(exporter.render())


def test_a_missing_label_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        Exporter("r").set(evaluation_metrics.EVAL_PASS_RATE, 0.25)


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_switch_often")
def test_two_threads_may_use_a_metric_first_at_once() -> None:
    metrics = [metric for metric in all_metrics() if metric.kind == "counter" and not metric.labels]
    threads, rounds = 8, 30
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            exporter, together = Exporter("r"), threading.Barrier(threads)

            def use_all(
                exporter: Exporter = exporter, together: threading.Barrier = together
            ) -> None:
                together.wait(10.0)
                for metric in metrics:
                    exporter.add(metric)

            for done in [pool.submit(use_all) for _ in range(threads)]:
                done.result(10.0)
            assert set(samples(exporter.render()).values()) == {float(threads)}


def test_names_are_unique_and_every_metric_has_a_help() -> None:
    metrics = all_metrics()
    assert len({metric.name for metric in metrics}) == len(metrics) > 60
    assert all(metric.help for metric in metrics)


def test_the_metrics_of_every_file_are_listed() -> None:
    files = Path(telemetry.__file__).parent.glob("*_metrics.py")
    listed = {f"{module.__name__.rpartition('.')[2]}.py" for module in MODULES} | {"all_metrics.py"}
    assert listed == {file.name for file in files}


UNITS = ("seconds", "device_hours", "bytes", "ratio")
OTHER_SCALES = (
    r"_(ms|milliseconds|us|ns|minutes|days|kb|mb|gb|kib|mib|gib|percent|pct)(_|$)"
    r"|(?<!_device)_hours"
)
UNIT_BY_HELP = {
    r"(Time|Wall time|Pause)\b": "seconds",
    r"Compute\b": "device_hours",
    r"Bytes\b": "bytes",
    r".* / ": "ratio",
}


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.name)
def test_the_unit_stands_last_in_the_name_and_is_a_base_unit(metric: Metric) -> None:
    name = metric.name.removesuffix("_total")
    assert not re.search(OTHER_SCALES, name)
    assert not any(f"_{unit}_" in name for unit in UNITS)
    for beginning, unit in UNIT_BY_HELP.items():
        if re.match(beginning, metric.help):
            assert name.endswith(f"_{unit}"), metric.help
    if metric.kind == "histogram":
        assert name.endswith(("_seconds", "_steps", "_turns", "_calls"))
        assert list(metric.buckets) == sorted(set(metric.buckets)) != []
