"""Reading metrics that others serve: pages of samples, and a Prometheus server's query API.

The content is treated as hostile: bounded in bytes, in series and in time. Every failure raises
`SourceAway`, whose message is one sentence.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import SecretStr

from rollcast.config.connections import Http
from rollcast.config.printable import without_credentials
from rollcast.connections.http import client

MAX_BYTES = 32 << 20
MAX_SAMPLES = 200_000
TIMEOUT_SECONDS = 10.0
MAX_INSTANTS = 10_000
"""Values of one range query: Prometheus returns at most 11,000 for a series. Over 30 days their
distance is below the 5 minutes for which Prometheus keeps a value valid, so none is missed."""


class SourceAway(Exception):  # noqa: N818  (a state that is waited out, not a mistake)
    """The source does not answer, or its answer contains no metrics."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series, without its time."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one series over time: `times` in Unix seconds, ascending."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def parse_page(text: str) -> list[Sample]:
    """The samples of a page in the Prometheus text format.

    Raises:
        SourceAway: the text is not in that format, or holds more than 200,000 samples.
    """
    from prometheus_client.parser import text_string_to_metric_families

    samples: list[Sample] = []
    try:
        for family in text_string_to_metric_families(text):
            samples.extend(
                Sample(sample.name, sample.labels, sample.value) for sample in family.samples
            )
            if len(samples) > MAX_SAMPLES:
                raise SourceAway(f"the metrics page holds more than {MAX_SAMPLES} samples")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise SourceAway(
            f"the metrics page is not in the Prometheus text format ({_one_line(error)})"
        ) from error
    return samples


class MetricsPage:
    """A service's /metrics, read with the token and the certificate authority of `settings`."""

    def __init__(self, url: str, settings: Http) -> None:
        self.url = url
        self._client = client(
            timeout_seconds=TIMEOUT_SECONDS, token=settings.token, tls=settings.tls
        )

    def read(self) -> list[Sample]:
        """Scrape once."""
        return parse_page(_fetch(self._client, "GET", self.url).decode("utf-8", errors="replace"))

    def close(self) -> None:
        self._client.close()


class Prometheus:
    """The query API of a Prometheus server."""

    def __init__(self, url: str, token: SecretStr | None = None) -> None:
        self._url = url.rstrip("/")
        self._client = client(timeout_seconds=TIMEOUT_SECONDS, token=token)

    def query(self, expression: str) -> list[Sample]:
        """Instant query: the newest sample of each series that `expression` selects."""
        samples = []
        for item in self._ask("query", {"query": expression}, "vector"):
            labels = _labels(item)
            samples.append(Sample(labels.pop("__name__", ""), labels, _value(item.get("value"))[1]))
        return samples

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """Range query from `start` to `end` (Unix seconds) every `step` seconds."""
        instants = {"start": start, "end": end, "step": step}
        form = {name: f"{value:.3f}" for name, value in instants.items()} | {"query": expression}
        series = []
        for item in self._ask("query_range", form, "matrix"):
            pairs = item.get("values")
            if not isinstance(pairs, list):
                raise SourceAway("Prometheus answered a series without values")
            values = [_value(pair) for pair in pairs]
            series.append(
                Series(
                    _labels(item),
                    tuple(at for at, _ in values),
                    tuple(value for _, value in values),
                )
            )
        return series

    def close(self) -> None:
        self._client.close()

    def _ask(self, path: str, form: dict[str, str], kind: str) -> list[dict[str, Any]]:
        body = _fetch(self._client, "POST", f"{self._url}/api/v1/{path}", form)
        try:
            answer = json.loads(body)
            data = answer["data"]
            if answer["status"] != "success" or data["resultType"] != kind:
                raise SourceAway(f"Prometheus answered {answer['status']}, not a {kind}")
            result = data["result"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SourceAway("Prometheus answered something that is not its JSON") from error
        if not isinstance(result, list) or not all(isinstance(item, dict) for item in result):
            raise SourceAway("Prometheus answered a result that is no list of series")
        if len(result) > MAX_SAMPLES:
            raise SourceAway(f"Prometheus answered more than {MAX_SAMPLES} series")
        return result


def _labels(item: dict[str, Any]) -> dict[str, str]:
    labels = item.get("metric")
    # A hundred runs have ten thousand series, so the types are compared as one set, without a copy.
    if not isinstance(labels, dict) or set(map(type, labels.values())) - {str}:
        raise SourceAway(
            "Prometheus answered a series without labels, or with some that are no text"
        )
    return labels


def _value(pair: Any) -> tuple[float, float]:
    try:
        at, value = pair
        return float(at), float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceAway("Prometheus answered a sample that is no number") from error


def _fetch(http: httpx.Client, method: str, url: str, form: dict[str, str] | None = None) -> bytes:
    """The body of an answer with status 200: at most 32 MiB, within 10 s altogether."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    place = without_credentials(url)
    body = bytearray()
    try:
        with http.stream(method, url, data=form) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise SourceAway(f"{place} answers more than {MAX_BYTES >> 20} MiB")
                if time.monotonic() > deadline:
                    raise SourceAway(f"{place} took longer than {TIMEOUT_SECONDS:g} s")
            if response.status_code != 200:
                reason = _one_line(bytes(body[:200]))
                raise SourceAway(f"{place} answers status {response.status_code} ({reason})")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceAway(f"{place} cannot be read ({_one_line(error)})") from error
    return bytes(body)


def _one_line(value: object) -> str:
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return " ".join(text.split())[:200] or type(value).__name__
