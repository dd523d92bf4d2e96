"""A run that a Prometheus has scraped, as dashboards look at it."""

from __future__ import annotations

from dataclasses import dataclass

SCRAPE_SECONDS = 1
NAMESPACE = "rl"
"""Labels as a cluster's Prometheus adds them."""


@dataclass(frozen=True)
class Recording:
    """Attributes: addresses of the query APIs; names of the runs; Unix seconds of the start and of
    the look at it; the namespace of its series; seconds between two scrapes."""

    prometheus: str
    forecaster: str
    runs: tuple[str, ...]
    began: float
    at: float
    namespace: str = NAMESPACE
    scrape_seconds: int = SCRAPE_SECONDS
