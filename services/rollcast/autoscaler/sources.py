"""Sources of readings: the metrics pages themselves, or a Prometheus that scrapes them."""

import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from rollcast.autoscaler.collector import (
    GENERATOR_METRICS,
    MAX_GENERATORS,
    READ,
    FleetReading,
    Place,
)
from rollcast.config.autoscaler import FleetPrometheus, FleetScrape
from rollcast.config.connections import Http
from rollcast.connections.http import in_url, local_url
from rollcast.connections.port_files import ports_folder, read_port
from rollcast.telemetry.prometheus_reader import MetricsPage, Prometheus, Sample, SourceAway

_OTHER_SERVICES = ("trainer", "forecaster", "autoscaler")
"""Services besides generators that write their port to the run folder."""
_GENERATOR_METRICS = {metric.name for metric in GENERATOR_METRICS}


class FleetSource(Protocol):
    """Read every few seconds."""

    skipped: Counter[str]
    """Pages and samples left out so far, by reason."""

    def read(self) -> FleetReading:
        """Read once. Raises SourceAway if the trainer, or Prometheus, does not answer."""

    def close(self) -> None: ...


def open_source(
    settings: FleetScrape | FleetPrometheus, http: Http, run: str, run_folder: Path
) -> FleetSource:
    if isinstance(settings, FleetPrometheus):
        return PrometheusFleet(settings, run)
    return ScrapedFleet(settings, http, run_folder)


class ScrapedFleet:
    """Reads all pages concurrently. A generator that does not answer is left out and counted."""

    def __init__(self, settings: FleetScrape, http: Http, run_folder: Path) -> None:
        self.skipped: Counter[str] = Counter()
        self._settings = settings
        self._http = http
        self._ports = ports_folder(run_folder)
        self._pages: dict[str, MetricsPage] = {}
        # Pods whose metrics are read at the same time
        self._readers = ThreadPoolExecutor(16, thread_name_prefix="scrape")

    def read(self) -> FleetReading:
        trainer = self._settings.trainer or self._find_url("trainer")
        places = self._generators()
        for url in self._pages.keys() - {trainer, *places.values()}:
            self._pages.pop(url).close()
        answer = self._readers.submit(self._page(trainer).read)
        waiting = {
            generator_id: self._readers.submit(self._page(url).read)
            for generator_id, url in places.items()
        }
        generators: dict[Place, list[Sample]] = {}
        for generator_id, future in waiting.items():
            try:
                generators[generator_id] = future.result()
            except SourceAway:
                self.skipped["generator_away"] += 1
        return FleetReading(answer.result(), generators)

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        for page in self._pages.values():
            page.close()

    def _page(self, url: str) -> MetricsPage:
        if url not in self._pages:
            self._pages[url] = MetricsPage(url, self._http)
        return self._pages[url]

    def _generators(self) -> dict[Place, str]:
        """Metrics page by address, or by name in the run folder."""
        if self._settings.generators is None:
            names = sorted(path.name for path in self._ports.glob("[!.]*"))
            names = [name for name in names if not name.startswith(_OTHER_SERVICES)]
            return self._readable(names[:MAX_GENERATORS])
        host, _, port = self._settings.generators.rpartition(":")
        try:
            address_infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            # A headless Service without a ready pod has no address.
            self.skipped["name_not_found"] += 1
            return {}
        addresses = sorted({str(entry[4][0]) for entry in address_infos})[:MAX_GENERATORS]
        scheme = "https" if self._http.tls else "http"
        return {address: f"{scheme}://{in_url(address)}:{port}/metrics" for address in addresses}

    def _readable(self, services: list[str]) -> dict[Place, str]:
        metrics_urls = {}
        for name in services:
            try:
                metrics_urls[name] = self._find_url(name)
            except SourceAway:
                self.skipped["port_file"] += 1
        return metrics_urls

    def _find_url(self, service: str) -> str:
        file = self._ports / service
        try:
            port = read_port(file)
        except (OSError, ValueError) as error:
            raise SourceAway(f"{file} does not contain the port of {service}") from error
        return f"{local_url(self._http, port)}/metrics"


class PrometheusFleet:
    """One instant query, which returns no series that a target has stopped exporting."""

    def __init__(self, settings: FleetPrometheus, run: str) -> None:
        self.skipped: Counter[str] = Counter()
        self._prometheus = Prometheus(settings.url, settings.token)
        namespace_matcher = f',namespace="{settings.namespace}"' if settings.namespace else ""
        names = "|".join(metric.name for metric in READ)
        self._query = f'{{__name__=~"{names}",run="{run}"{namespace_matcher}}}'

    def read(self) -> FleetReading:
        trainer: list[Sample] = []
        generators: dict[Place, list[Sample]] = {}
        for sample in self._prometheus.query(self._query):
            if sample.name not in _GENERATOR_METRICS:
                trainer.append(sample)
                continue
            generator_id = sample.labels.get("pod") or sample.labels.get("instance")
            if generator_id is None:
                self.skipped["no_pod_label"] += 1
            else:
                generators.setdefault(generator_id, []).append(sample)
        return FleetReading(trainer, generators)

    def close(self) -> None:
        self._prometheus.close()
