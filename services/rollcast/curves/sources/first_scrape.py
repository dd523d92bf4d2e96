"""The time at which each evaluation was first scraped, from Prometheus."""

import math
from collections.abc import Sequence
from dataclasses import replace

from rollcast.curves.evaluations import CurvePoint
from rollcast.telemetry import names
from rollcast.telemetry.prometheus_reader import MAX_INSTANTS, Prometheus

FINEST_SECONDS = 5
_LABELS = ("run", "dataset", "incarnation", "step")


def dated(
    prometheus: Prometheus, evaluations: Sequence[CurvePoint], window_seconds: float, now: float, namespace: str
) -> list[CurvePoint]:
    """The evaluations, each with its first scrape in the window before `now`; `namespace` of their series, empty = any.

    Evaluations that Prometheus does not know are unchanged. Raises SourceAway if Prometheus cannot be read.
    """
    if not evaluations:
        return []
    first = _first_scrapes(prometheus, window_seconds, now, namespace)
    return [replace(item, at=first.get(_labels(item), item.at)) for item in evaluations]


def _first_scrapes(
    prometheus: Prometheus, window_seconds: float, now: float, namespace: str
) -> dict[tuple[str, ...], float]:
    """Unix seconds by the labels of an evaluation, late by a ten-thousandth of the runs' age or 5 seconds at most."""
    first: dict[tuple[str, ...], float] = {}
    while True:
        resolution = max(FINEST_SECONDS, math.ceil(window_seconds / MAX_INSTANTS))
        first |= _ask(prometheus, window_seconds, resolution, namespace)
        since_first = now - min(first.values(), default=now) + resolution
        if resolution == FINEST_SECONDS or since_first > window_seconds / 2:
            return first
        window_seconds = since_first


def _ask(
    prometheus: Prometheus, window_seconds: float, resolution: int, namespace: str
) -> dict[tuple[str, ...], float]:
    place = f'{{namespace="{namespace}"}}' if namespace else ""
    scraped = f"timestamp({names.EVAL_PASS_RATE.name}{place})[{math.ceil(window_seconds)}s:{resolution}s]"
    first: dict[tuple[str, ...], float] = {}
    for sample in prometheus.query(f"min_over_time({scraped})"):
        key = tuple(sample.labels.get(label, "") for label in _LABELS)
        first[key] = min(sample.value, first.get(key, math.inf))
    return first


def _labels(item: CurvePoint) -> tuple[str, ...]:
    return (item.run, item.dataset, str(item.incarnation), str(item.step))
