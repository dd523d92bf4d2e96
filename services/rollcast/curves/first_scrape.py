"""When each evaluation was first scraped, and how many rollouts were cut off then: Prometheus remembers both."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace

from rollcast.curves.evaluations import Evaluation, checked
from rollcast.telemetry import names
from rollcast.telemetry.prometheus_reader import Prometheus, Series

MAX_INSTANTS = 10_000
"""Of one query: over 30 days they lie closer than the 5 minutes that Prometheus looks back, so none is missed."""
MAX_VALUES = 200_000
"""Of all runs together."""
FINEST_SECONDS = 5
_LABELS = ("run", "dataset", "incarnation", "step")


def dated(
    prometheus: Prometheus, evaluations: Sequence[Evaluation], window_seconds: float, now: float
) -> list[Evaluation]:
    """The evaluations, each with its first scrape in the window before `now` and the run's truncation then.

    What Prometheus does not know stays as it is. Raises SourceAway where Prometheus is away.
    """
    if not evaluations:
        return []
    first = _first_scrapes(prometheus, window_seconds, now)
    timed = [replace(item, at=first.get(_labels(item), item.at)) for item in evaluations]
    start, end = min(item.at for item in timed), max(item.at for item in timed)
    instants = max(1, min(MAX_INSTANTS, MAX_VALUES // len({item.run for item in timed})))
    resolution = max(FINEST_SECONDS, math.ceil((end - start) / instants))
    # Counted back from the newest evaluation, mostly the only one: its very instant is asked about.
    start = end - math.ceil((end - start) / resolution) * resolution
    found = prometheus.query_range(f"avg by (run) ({names.TRUNCATION_RATIO.name})", start, end, resolution)
    by_run = {series.labels.get("run"): series for series in found}
    return [_with_truncation(item, by_run.get(item.run), resolution) for item in timed]


def _first_scrapes(prometheus: Prometheus, window_seconds: float, now: float) -> dict[tuple[str, ...], float]:
    """Unix seconds by the labels of an evaluation, late by a ten-thousandth of the runs' age or 5 seconds at most."""
    first: dict[tuple[str, ...], float] = {}
    while True:
        resolution = max(FINEST_SECONDS, math.ceil(window_seconds / MAX_INSTANTS))
        first |= _ask(prometheus, window_seconds, resolution)
        since_first = now - min(first.values(), default=now) + resolution
        if resolution == FINEST_SECONDS or since_first > window_seconds / 2:
            return first
        window_seconds = since_first


def _ask(prometheus: Prometheus, window_seconds: float, resolution: int) -> dict[tuple[str, ...], float]:
    scraped = f"timestamp({names.EVAL_PASS_RATE.name})[{math.ceil(window_seconds)}s:{resolution}s]"
    first: dict[tuple[str, ...], float] = {}
    for sample in prometheus.query(f"min_over_time({scraped})"):
        key = tuple(sample.labels.get(label, "") for label in _LABELS)
        first[key] = min(sample.value, first.get(key, math.inf))
    return first


def _labels(item: Evaluation) -> tuple[str, ...]:
    return (item.run, item.dataset, str(item.incarnation), str(item.step))


def _with_truncation(item: Evaluation, series: Series | None, resolution: float) -> Evaluation:
    """With the value nearest in time, where there is one within the resolution."""
    if series is None:
        return item
    place = bisect.bisect_left(series.times, item.at)
    near = range(max(place - 1, 0), min(place + 1, len(series.times)))
    nearest = min(near, key=lambda index: abs(series.times[index] - item.at), default=None)
    if nearest is None or abs(series.times[nearest] - item.at) > resolution:
        return item
    return checked(replace(item, truncation_ratio=series.values[nearest]))
