"""Where evaluations come from: metrics pages, a Prometheus server, the run folder's file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from rollcast.config.services import CurveQueries, DirectScrape, Http, PrometheusSource
from rollcast.connections.http import local_url
from rollcast.forecaster.evaluations import Evaluation, checked
from rollcast.forecaster.foreign_curve import read_curve
from rollcast.forecaster.reading import EVALUATION_NAMES, STATUS_NAMES, Reading, interpret
from rollcast.telemetry.prometheus_reader import MetricsPage, Prometheus, Sample, SourceAway

LOOK_BACK_SECONDS = 30 * 86_400.0
"""How far the first look at a Prometheus goes back."""
OVERLAP_SECONDS = 300.0
MAX_READ_BYTES = 16 << 20


class Source(Protocol):
    """Read every few seconds; never keeps state that a later `read` could not rebuild."""

    def read(self) -> Reading:
        """One look. Raises SourceAway where it does not answer."""

    def close(self) -> None: ...


def open_source(settings: DirectScrape | PrometheusSource, http: Http, run_folder: Path) -> Source:
    """The source that the run file names; `http` is how the services serve."""
    if isinstance(settings, PrometheusSource):
        return PrometheusQueries(settings.url, settings.token, settings.curves)
    return MetricsPages(settings.urls, http, run_folder / "ports" / "trainer")


class MetricsPages:
    """Direct scraping of fixed addresses, or of the port in the run folder's file."""

    def __init__(self, urls: tuple[str, ...], http: Http, port_file: Path) -> None:
        self._urls = urls
        self._http = http
        self._port_file = port_file
        self._pages: dict[str, MetricsPage] = {}

    def read(self) -> Reading:
        samples: list[Sample] = []
        failures = []
        urls = self._urls or (self._found_url(),)
        for url in urls:
            if url not in self._pages:
                self._pages[url] = MetricsPage(url, self._http)
            try:
                samples += self._pages[url].read()
            except SourceAway as error:
                failures.append(error)
        for url in self._pages.keys() - set(urls):
            self._pages.pop(url).close()
        if len(failures) == len(urls):
            raise failures[0]
        reading = interpret(samples, at=time.time())
        reading.skipped["page_away"] += len(failures)
        return reading

    def close(self) -> None:
        for page in self._pages.values():
            page.close()

    def _found_url(self) -> str:
        try:
            with self._port_file.open() as file:
                port = int(file.read(20))
        except OSError as error:
            raise SourceAway(f"no trainer has written {self._port_file} yet") from error
        except ValueError as error:
            raise SourceAway(f"{self._port_file} holds no port number") from error
        return f"{local_url(self._http, port)}/metrics"


class PrometheusQueries:
    """Instant queries over a window: labels tell evaluations apart, so the last value of each series is all there is.

    The window reaches back to the last look that was answered; what was scraped while the forecaster or Prometheus was
    away is found then.
    """

    def __init__(self, url: str, token: SecretStr | None = None, curves: tuple[CurveQueries, ...] = ()) -> None:
        self._curves = curves
        self._prometheus = Prometheus(url, token)
        self._last = 0.0

    def read(self) -> Reading:
        now = time.time()
        window = min(now - self._last + OVERLAP_SECONDS, LOOK_BACK_SECONDS)
        samples = self._prometheus.query(f"last_over_time({_any_of(EVALUATION_NAMES)}[{window:.0f}s])")
        samples += self._prometheus.query(_any_of(STATUS_NAMES))
        self._last = now
        reading = interpret(samples, at=now)
        for curve in self._curves:
            foreign = read_curve(self._prometheus, curve, now)
            reading.evaluations += foreign.evaluations
            reading.skipped += foreign.skipped
        return reading

    def close(self) -> None:
        self._prometheus.close()


def _any_of(metric_names: tuple[str, ...]) -> str:
    return f'{{__name__=~"{"|".join(metric_names)}"}}'


class EvaluationsFile:
    """The run folder's evaluations.jsonl, read from where the last look ended."""

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        self._offset = 0

    def read(self) -> Reading:
        """New complete lines; nothing where there is no file."""
        reading = Reading()
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                chunk = file.read(MAX_READ_BYTES)
        except OSError:
            return reading
        complete = chunk[: chunk.rfind(b"\n") + 1]
        if not complete and len(chunk) == MAX_READ_BYTES:
            complete = chunk
        self._offset += len(complete)
        for line in complete.splitlines():
            try:
                reading.evaluations.append(_parse_line(line, self._run))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                reading.skipped["bad_line"] += 1
        return reading

    def close(self) -> None:
        """Nothing is held open."""


def _parse_line(line: bytes, run: str) -> Evaluation:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("not an object")
    error, tokens, samples = (record.get(name) for name in ("standard_error", "trained_tokens", "samples"))
    return checked(
        Evaluation(
            run=str(record.get("run", run)),
            dataset=str(record.get("dataset", "")),
            incarnation=int(record["incarnation"]),
            step=int(record["step"]),
            pass_rate=float(record["pass_rate"]),
            compute=float(record["compute_device_hours"]),
            standard_error=None if error is None else float(error),
            trained_tokens=None if tokens is None else float(tokens),
            samples=None if samples is None else float(samples),
            at=float(record.get("at", time.time())),
        )
    )
