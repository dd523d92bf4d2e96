"""A proof: the page follows a run through an outage of Prometheus.

`python -m benchmarks.replay` says how fast.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.forecaster.browser import NEEDS_CHROMIUM
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS
from testkit.forecaster.replay import BEFORE, NUM_POINTS, UNTIL, replay
from testkit.forked_programs import ForkedPrograms

SCRAPE_LASTS = 0.5
"""Seconds at the most: a scrape bears the time of its beginning, and finds what was exported until
it is answered."""

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM, NEEDS_PROMETHEUS]


@pytest.mark.timeout(600)
def test_the_page_follows_a_replayed_run_through_an_outage_of_prometheus(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    replayed = replay(tmp_path, services, pace_seconds=1.5, scrape_seconds=1)
    # Nothing is lost, nothing comes twice, and each evaluation has its forecast.
    assert [(p["step"], p["compute"]) for p in replayed.final_points] == [
        (r.step, r.compute) for r in replayed.points
    ]
    assert [entry["num_points"] for entry in replayed.history] == list(range(2, NUM_POINTS + 1))
    # What the page showed only ever grew, and stood still while nobody scraped.
    assert replayed.counts == sorted(replayed.counts)
    assert {BEFORE, NUM_POINTS} <= set(replayed.counts)
    # Each evaluation took its way: trainer, Prometheus, page. Those of the outage were scraped once
    # it was over.
    for exported, scraped, shown in zip(
        replayed.exported, replayed.scraped, replayed.shown_times, strict=True
    ):
        assert exported - SCRAPE_LASTS < scraped < shown
    assert min(replayed.scraped[BEFORE:UNTIL]) > replayed.exported[UNTIL - 1]
