"""The live page in a real browser without a screen: it loads, shows the forecast, and follows it.

Everything else on it: test_whole_page.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from rollcast.connections.port_files import publish_port
from testkit.forecaster.browser import NEEDS_CHROMIUM, WAIT, open_page, wait_marks
from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import running
from testkit.forked_programs import ForkedPrograms

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM]


@pytest.mark.timeout(300)
def test_the_page_shows_the_forecast_and_follows_it_without_a_complaint(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record(14)
    source = {"kind": "scrape", "every_seconds": 0.2}
    config = run_file(tmp_path, source, budget={"steps": 400})
    with (
        TrainerPage() as trainer,
        running(config, tmp_path, services) as service,
        open_page(f"http://127.0.0.1:{service.port}/", tmp_path / "profile", 1280, "light") as page,
    ):
        page.wait_for_selector("text=No forecast yet")
        for reading in points[:12]:
            trainer.show(reading)
        publish_port(tmp_path / "demo", "trainer", trainer.port)
        wait_marks(page, "#curve", "point", 12)
        said = service.wait_points(12)
        expect(page.locator("#asymptote")).to_have_text(
            f"{said['asymptote']['q50']:.3f}", timeout=WAIT
        )
        expect(page.locator("#advice-word")).to_have_text(said["advice"]["headline"], timeout=WAIT)
        for reading in points[12:]:
            trainer.show(reading)
        wait_marks(page, "#curve", "point", 14)
        expect(page.locator("#points tbody tr:last-child th")).to_have_text(
            f"{points[-1].step}", timeout=WAIT
        )
