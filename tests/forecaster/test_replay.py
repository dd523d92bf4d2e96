"""A recorded run replayed at 60 times its pace: trainer's page, Prometheus, forecaster, browser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.forecaster.browser import NEEDS_CHROMIUM, WAIT, opened
from tests.forecaster.prometheus_server import NEEDS_PROMETHEUS, free_port, prometheus
from tests.forecaster.recorded_run import Reading, TrainerPage, record, run_file
from tests.forecaster.service_process import running

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM, NEEDS_PROMETHEUS]
NUM_POINTS = 12
PACE_SECONDS = 240 / 60
"""An evaluation every four minutes, 60 times as fast."""
SCRAPE_SECONDS = 3
_WATCH = """() => {
  const note = document.getElementById("now-note");
  window.refreshes = [];
  const refreshed = () => window.refreshes.push([Date.now() / 1000, note.textContent]);
  new MutationObserver(refreshed).observe(note, {childList: true});
}"""


@pytest.mark.timeout(600)
def test_the_page_follows_a_replayed_run_through_an_outage_of_prometheus(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points, port = record(NUM_POINTS), free_port()
    exported: list[float] = []

    def play(page: Any, readings: list[Reading]) -> None:
        for reading in readings:
            trainer.show(reading)
            exported.append(time.time())
            page.wait_for_timeout(1000 * PACE_SECONDS)

    source = {"kind": "prometheus", "url": f"http://127.0.0.1:{port}", "every_seconds": 0.5}
    with TrainerPage() as trainer, running(run_file(tmp_path, source), tmp_path) as service:
        server = (tmp_path, port, [trainer.port], SCRAPE_SECONDS)
        with opened(f"http://127.0.0.1:{service.port}/", tmp_path / "profile", 1280, "light") as page:
            page.evaluate(_WATCH)
            with prometheus(*server):
                play(page, points[:5])
                expect(page.locator("#curve circle")).to_have_count(5, timeout=WAIT)
            page.wait_for_selector("#source.away", timeout=WAIT)
            play(page, points[5:8])
            assert page.locator("#curve circle").count() == 5, "nobody scrapes"
            with prometheus(*server):
                again = time.time()
                page.wait_for_selector("#source.up", timeout=WAIT)
                play(page, points[8:])
                expect(page.locator("#curve circle")).to_have_count(NUM_POINTS, timeout=WAIT)
                expect(page.locator("#now-note")).to_contain_text(f"{NUM_POINTS} evaluations", timeout=WAIT)
            refreshes = page.evaluate("window.refreshes")
            said = service.forecast()
            assert said is not None
            assert page.inner_text("#asymptote") == f"{said['asymptote']['q50']:.3f}"
        kept = service.client.get("/api/runs/demo/points").json()["points"]
        past = service.client.get("/api/runs/demo/history").json()["forecasts"]

    # Nothing is lost, nothing comes twice, and each evaluation has its forecast.
    assert [(p["step"], p["compute"]) for p in kept] == [(r.step, r.compute) for r in points]
    assert [entry["num_points"] for entry in past] == list(range(2, NUM_POINTS + 1))
    # What the page showed only ever grew, and stood still while nobody scraped.
    counts = [int(re.search(r"(\d+) evaluations", text)[1]) for _, text in refreshes]  # type: ignore[index]
    assert counts == sorted(counts)
    assert {5, NUM_POINTS} <= set(counts)
    # From the evaluation's export (during the outage: from Prometheus's return) to the page.
    seen = list(zip(counts, (at for at, _ in refreshes), strict=True))
    shown = [next(at for count, at in seen if count > place) for place in range(NUM_POINTS)]
    lags = [
        at - max(since, again if 5 <= place < 8 else 0.0)
        for place, (at, since) in enumerate(zip(shown, exported, strict=True))
    ]
    assert all(lag > 0 for lag in lags)
    record_property("lag_seconds", [round(lag, 1) for lag in lags])
    in_time = sum(lag <= SCRAPE_SECONDS for lag in lags[1:])
    print(f"scraped every {SCRAPE_SECONDS} s; from export to page {lags[1:]} s: {in_time} within one interval")
