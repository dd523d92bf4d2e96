"""A recorded run replayed at many times its pace: trainer's page, Prometheus, forecaster, browser.

five evaluations -> Prometheus killed -> three that are not scraped -> Prometheus again, the three
-> four
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from rollcast.local.ports import free_port
from testkit.forecaster.browser import WAIT, marks, open_page, wait_marks
from testkit.forecaster.prometheus_server import first_scrapes, prometheus
from testkit.forecaster.recorded_run import Reading, TrainerPage, record, run_file
from testkit.forecaster.service_process import running, wait_for
from testkit.forked_programs import ForkedPrograms

NUM_POINTS = 12
BEFORE, UNTIL = 5, 8
"""Evaluations shown before Prometheus is killed, and when it is back."""
PACE_SECONDS = 240 / 60
"""An evaluation every four minutes, 60 times as fast."""
SCRAPE_SECONDS = 3
_WATCH = """() => {
  const note = document.getElementById("now-note");
  window.refreshes = [];
  const refreshed = () => window.refreshes.push([Date.now() / 1000, note.textContent]);
  new MutationObserver(refreshed).observe(note, {childList: true});
}"""


@dataclass(frozen=True)
class Replay:
    """Figures of one replay."""

    points: list[Reading]
    """Readings of the trainer's page, one after the other."""
    counts: list[int]
    """Evaluations that the page named, at each of its refreshes."""
    exported: list[float]
    """By evaluation, Unix seconds, as all times here."""
    scraped: list[float]
    """By evaluation: the time of its first sample in Prometheus, which is when that scrape
    began."""
    shown_times: list[float]
    """By evaluation: when the page named it."""
    final_points: list[dict[str, Any]]
    """The service's points at the end."""
    history: list[dict[str, Any]]
    """The service's own past forecasts at the end."""


def replay(
    folder: Path,
    services: ForkedPrograms | None = None,
    *,
    pace_seconds: float = PACE_SECONDS,
    scrape_seconds: int = SCRAPE_SECONDS,
) -> Replay:
    """An evaluation every `pace_seconds`, scraped every `scrape_seconds`.

    Raises AssertionError if the page shows an evaluation that was not scraped, or differs from the
    service.
    """
    points, port = record(NUM_POINTS), free_port("127.0.0.1")
    exported: list[float] = []

    def play(page: Any, readings: list[Reading]) -> None:
        for reading in readings:
            exported.append(time.time())  # before: a scrape may come immediately
            trainer.show(reading)
            page.wait_for_timeout(1000 * pace_seconds)

    source = {"kind": "prometheus", "url": f"http://127.0.0.1:{port}", "every_seconds": 0.5}
    with TrainerPage() as trainer, running(run_file(folder, source), folder, services) as service:
        server = (folder, port, [trainer.port], scrape_seconds)
        with open_page(
            f"http://127.0.0.1:{service.port}/", folder / "profile", 1280, "light"
        ) as page:
            page.evaluate(_WATCH)
            with prometheus(*server):
                play(page, points[:1])
                wait_for(
                    lambda: first_scrapes(port, "demo")
                )  # it does not scrape yet when it is ready
                play(page, points[1:BEFORE])
                wait_marks(page, "#curve", "point", BEFORE)
            page.wait_for_selector("#source.away", timeout=WAIT)
            play(page, points[BEFORE:UNTIL])
            assert marks(page, "#curve", "point") == BEFORE, "nobody scrapes"
            with prometheus(*server):
                page.wait_for_selector("#source.up", timeout=WAIT)
                wait_marks(page, "#curve", "point", UNTIL)
                play(page, points[UNTIL:])
                wait_marks(page, "#curve", "point", NUM_POINTS)
                expect(page.locator("#now-note")).to_contain_text(
                    f"{NUM_POINTS} evaluations", timeout=WAIT
                )
                scraped = first_scrapes(port, "demo")
            refreshes = page.evaluate("window.refreshes")
            forecast_answer: Any = service.forecast()
            assert page.inner_text("#asymptote") == f"{forecast_answer['asymptote']['q50']:.3f}"
        final_points = service.client.get("/api/runs/demo/points").json()["points"]
        history = service.client.get("/api/runs/demo/history").json()["forecasts"]
    counts = [int(re.search(r"(\d+) evaluations", text)[1]) for _, text in refreshes]  # type: ignore[index]
    counts_over_time = list(zip(counts, (at for at, _ in refreshes), strict=True))
    shown = [next(at for count, at in counts_over_time if count > n) for n in range(NUM_POINTS)]
    scraped_times = [scraped[point.step] for point in points]
    return Replay(points, counts, exported, scraped_times, shown, final_points, history)
