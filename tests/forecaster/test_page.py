"""The live page in a real browser without a screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from rollcast.connections.http import publish_port
from tests.forecaster.browser import CHROMIUM, FLAGS, NEEDS_CHROMIUM, WAIT, opened
from tests.forecaster.recorded_run import TrainerPage, record, run_file
from tests.forecaster.service_process import running

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM]
LOW_CONTRAST = r"""() => {
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const all = document.querySelectorAll("body *:not(title, option, script, noscript *, noscript)");
  const texts = [...all].filter((node) => node.checkVisibility() &&
    [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
  return texts.map((node) => {
    const style = getComputedStyle(node), ink = numbers(node.ownerSVGElement ? style.fill : style.color);
    const [dark, light] = [luminance(ink), luminance(behind(node))].sort((a, b) => a - b);
    return [(light + 0.05) / (dark + 0.05), node.textContent];
  }).filter(([ratio]) => ratio < 4.5);
}"""
"""Texts whose contrast is below the 4.5 that the Web Content Accessibility Guidelines (level AA) ask for."""


@pytest.mark.timeout(300)
def test_the_page_shows_the_forecast_and_follows_it(tmp_path: Path) -> None:
    points = record()
    source = {"kind": "scrape", "every_seconds": 0.2}
    with TrainerPage() as trainer, running(run_file(tmp_path, source, budget={"steps": 400}), tmp_path) as service:
        url = f"http://127.0.0.1:{service.port}/"
        with opened(url, tmp_path / "wide", 1280, "light") as page:
            page.wait_for_selector("text=No forecast yet")
            publish_port(tmp_path / "demo", "trainer", trainer.port)
            for reading in points[:12]:
                trainer.show(reading)
                service.wait_points(reading.step // 10 + 1) if reading.step else None
            page.wait_for_selector("#curve svg circle")
            expect(page.locator("#curve circle")).to_have_count(12, timeout=WAIT)
            said = service.forecast()
            assert said is not None
            expect(page.locator("#asymptote")).to_have_text(f"{said['asymptote']['q50']:.3f}", timeout=WAIT)
            assert said["reason"] == page.inner_text("#verdict-reason")
            # A new evaluation appears by itself.
            for reading in points[12:18]:
                trainer.show(reading)
            expect(page.locator("#curve circle")).to_have_count(18, timeout=WAIT)
            # The slider asks what the API answers.
            page.fill("#target", "0.7")
            expect(page.locator("#target-value")).to_have_text("0.700", timeout=WAIT)
            target = service.client.get("/api/runs/demo/target?pass_rate=0.7").json()["compute"]["q50"]
            expect(page.locator("#target-answer")).to_have_text(f"{target:.3f} device-hours in all", timeout=WAIT)
            # An earlier forecast is drawn over the present one, from the keyboard.
            page.focus("#earlier")
            for _ in range(8):
                page.keyboard.press("ArrowLeft")
            page.wait_for_selector("#curve path.line.earlier")
            expect(page.locator("#earlier-answer")).to_contain_text("It said")
            page.check("#power")
            page.wait_for_selector("#curve path.line.power")
            page.check("#log")
            assert page.inner_text("#staleness-note").startswith("Share of trained tokens")
            assert "rollouts are cut" in page.inner_text("#truncation-note")
            assert page.locator("#truncation circle").count() > 1
            page.click("summary")
            assert page.locator("#points tbody tr").count() == 18
            assert page.inner_text("#points tbody tr:last-child td:last-child") == "5.4 %"
            # Every control has a name that a screen reader can say.
            unnamed = page.eval_on_selector_all(
                "input, select", "nodes => nodes.filter(n => !(n.labels && n.labels.length)).map(n => n.id)"
            )
            assert unnamed == []
        for width, scheme in ((390, "dark"), (390, "light"), (1280, "dark")):
            with opened(url, tmp_path / f"{width}-{scheme}", width, scheme) as page:
                page.wait_for_selector("#curve svg circle")
                page.wait_for_selector("#staleness svg")
                overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert overflow <= 0, "the page must not scroll sideways"
                assert page.evaluate(LOW_CONTRAST) == []
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (background == "rgb(15, 18, 21)") == (scheme == "dark")


def test_several_runs_are_compared_and_an_absent_service_is_told(tmp_path: Path) -> None:
    with TrainerPage() as first, TrainerPage("low-rate") as second:
        urls = [f"http://127.0.0.1:{page.port}/metrics" for page in (first, second)]
        for one, two in zip(record()[:16], record(asymptote=0.6, seed=2)[:16], strict=True):
            first.show(one)
            second.show(two)
        source = {"kind": "scrape", "every_seconds": 0.2, "urls": urls}
        with running(run_file(tmp_path, source), tmp_path) as service:
            service.wait_points(16)
            service.wait_points(16, "low-rate")
            with sync_playwright() as playwright:
                context = playwright.chromium.launch_persistent_context(
                    str(tmp_path / "profile"), executable_path=CHROMIUM, args=FLAGS
                )
                page = context.pages[0]
                page.goto(f"http://127.0.0.1:{service.port}/")
                page.wait_for_selector("#curve svg circle")
                page.check("#compare input")
                page.wait_for_selector("#curve path.line.run-1")
                assert page.locator("#curve circle").count() == 32
                page.select_option("#run", "low-rate")
                expect(page.locator("#curve circle")).to_have_count(16, timeout=WAIT)
                low = service.forecast("low-rate")
                assert low is not None
                expect(page.locator("#asymptote")).to_have_text(f"{low['asymptote']['q50']:.3f}", timeout=WAIT)
                service.stop()
                page.wait_for_selector("#source.away")
                assert page.inner_text("#asymptote") == f"{low['asymptote']['q50']:.3f}"
                context.close()
