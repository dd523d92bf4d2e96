"""A Prometheus server that scrapes trainers, or that holds the series of other frameworks."""

import math
import time
from dataclasses import replace

from pydantic import SecretStr

from rollcast.config.curve_sources import CurveQueries
from rollcast.curves.evaluations import Reading
from rollcast.curves.sources.foreign_curve import ForeignCurve
from rollcast.curves.sources.metrics_page import (
    EVALUATION_LABELS,
    EVALUATION_NAMES,
    STATUS_NAMES,
    interpret,
)
from rollcast.telemetry import evaluation_metrics
from rollcast.telemetry.prometheus_reader import MAX_INSTANTS, Prometheus, SourceAway

OVERLAP_SECONDS = 300.0
WHOLE_EVERY_SECONDS = 60.0
"""Time between two looks at all evaluations, which find those that reached Prometheus late, by
remote write."""
LONGEST_SCRAPE_SECONDS = 60.0
"""A sample has the time at which its scrape began, but appears when the scrape has ended or was
written remotely."""
_EVALUATION = ", ".join(EVALUATION_LABELS)
FINEST_SECONDS = 5
"""Least distance of the instants at which the first scrape of an evaluation is looked for."""


class PrometheusQueries:
    """Instant queries over a window. Labels identify each evaluation, so the last value of each
    series is enough.

    Most looks ask only for evaluations since the last one: reading every evaluation of a hundred
    runs takes ten times as long. Once a minute everything is read, back to the last such look that
    succeeded, to find what was scraped while the forecaster or Prometheus was down.
    """

    def __init__(
        self,
        url: str,
        token: SecretStr | None = None,
        curves: tuple[CurveQueries, ...] = (),
        namespace: str = "",
    ) -> None:
        """`namespace`: of the runs that are read; empty = any."""
        self._namespace = namespace
        self._prometheus = Prometheus(url, token)
        self._curves: list[ForeignCurve] = [
            ForeignCurve(self._prometheus, curve) for curve in curves
        ]
        self._untold: list[Reading] = []
        """Readings of the curves that were not returned yet, because a later query of the same look
        failed."""
        self._last = self._last_whole = 0.0
        self._dated_keys: set[tuple[str, str, int, int]] = set()
        """Evaluations of the last look at everything and of those since. They are not dated
        again."""

    def read(self) -> Reading:
        now_seconds = time.time()
        for curve in self._curves:
            self._untold.append(curve.read(now_seconds))
        # The clock may have been set back since the last look.
        since, since_whole = (
            max(0.0, now_seconds - last) for last in (self._last, self._last_whole)
        )
        is_whole = since_whole >= WHOLE_EVERY_SECONDS
        if is_whole:
            # How far the first look at a Prometheus goes back
            window = min(since_whole + OVERLAP_SECONDS, 30 * 86_400.0)
            expression = f"last_over_time({self._metric_selector(EVALUATION_NAMES)}[{window:.0f}s])"
        else:
            window = since + LONGEST_SCRAPE_SECONDS
            expression = _new_within(self._metric_selector(EVALUATION_NAMES), math.ceil(window))
        samples = self._prometheus.query(expression)
        samples += self._prometheus.query(self._metric_selector(STATUS_NAMES))
        reading = interpret(samples, at=now_seconds)
        self._date(reading, window, now_seconds, is_whole=is_whole)
        # Only now: if a query failed, the next look covers the same time again.
        self._last = now_seconds
        if is_whole:
            self._last_whole = now_seconds
        for curve_reading in self._untold:
            reading.evaluations += curve_reading.evaluations
            reading.skipped += curve_reading.skipped
        self._untold = []
        return reading

    def close(self) -> None:
        self._prometheus.close()

    def _metric_selector(self, metric_names: tuple[str, ...]) -> str:
        namespace_matcher = f',namespace="{self._namespace}"' if self._namespace else ""
        return f'{{__name__=~"{"|".join(metric_names)}"{namespace_matcher}}}'

    def _date(
        self, reading: Reading, window_seconds: float, now_seconds: float, *, is_whole: bool
    ) -> None:
        """Set the times of new evaluations.

        If Prometheus cannot answer, they keep the time of this look.
        """
        keys = [(item.run, *item.key) for item in reading.evaluations]
        new_indices = [index for index, key in enumerate(keys) if key not in self._dated_keys]
        self._dated_keys = set(keys) if is_whole else self._dated_keys | set(keys)
        try:
            scrape_times = self._first_scrapes(window_seconds, now_seconds) if new_indices else {}
        except SourceAway:
            reading.skipped["undated"] += len(new_indices)
            return
        for index in new_indices:
            item = reading.evaluations[index]
            labels = (item.run, item.dataset, str(item.incarnation), str(item.step))
            reading.evaluations[index] = replace(item, at=scrape_times.get(labels, item.at))

    def _first_scrapes(
        self, window_seconds: float, now_seconds: float
    ) -> dict[tuple[str, ...], float]:
        """Unix seconds by the labels of an evaluation, late by a ten-thousandth of the runs' age or
        5 seconds at most.

        Those in the window before `now_seconds`. Raises SourceAway if Prometheus cannot be read.
        """
        namespace_matcher = f'{{namespace="{self._namespace}"}}' if self._namespace else ""
        first: dict[tuple[str, ...], float] = {}
        while True:
            resolution = max(FINEST_SECONDS, math.ceil(window_seconds / MAX_INSTANTS))
            readings = f"{evaluation_metrics.EVAL_PASS_RATE.name}{namespace_matcher}"
            scraped = f"timestamp({readings})[{math.ceil(window_seconds)}s:{resolution}s]"
            scrape_times: dict[tuple[str, ...], float] = {}
            for sample in self._prometheus.query(f"min_over_time({scraped})"):
                key = tuple(sample.labels.get(label, "") for label in EVALUATION_LABELS)
                # An evaluation may have several series, one for each address from which it was
                # scraped.
                scrape_times[key] = min(sample.value, scrape_times.get(key, math.inf))
            first |= scrape_times
            since_first = now_seconds - min(first.values(), default=now_seconds) + resolution
            # A run that began late in the window is asked about again, at instants closer together.
            if resolution == FINEST_SECONDS or since_first > window_seconds / 2:
                return first
            window_seconds = since_first


def _new_within(evaluations: str, seconds: int) -> str:
    """An expression for the selected evaluations that have a series younger than `seconds`, with
    all their series.
    """
    series = f"last_over_time({evaluations}[{OVERLAP_SECONDS:.0f}s])"
    return (
        f"{series} and on({_EVALUATION}) ({series} unless on(__name__, {_EVALUATION}) "
        f"last_over_time({evaluations}[{OVERLAP_SECONDS:.0f}s] offset {seconds}s))"
    )
