"""A proof: everything on the live page, in a real browser without a screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from rollcast.connections.port_files import publish_port
from rollcast.local.ports import free_port
from rollcast.telemetry import trainer_metrics
from testkit.forecaster.browser import (
    CHROMIUM,
    FLAGS,
    LOW_CONTRAST,
    NEEDS_CHROMIUM,
    WAIT,
    marks,
    open_page,
    wait_marks,
)
from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import running
from testkit.forked_programs import ForkedPrograms

pytestmark = [pytest.mark.browser, NEEDS_CHROMIUM]
SEEN = "() => document.querySelector('#curve canvas').toDataURL()"


def show_anew(page: Any, width: int, scheme: str) -> None:
    """Load the page again on a screen of that width."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.reload()
    page.wait_for_selector("#curve canvas")


@pytest.mark.timeout(300)
def test_the_page_shows_the_forecast_and_follows_it(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record()
    source = {"kind": "scrape", "every_seconds": 0.2}
    with (
        TrainerPage() as trainer,
        running(run_file(tmp_path, source, budget={"steps": 400}), tmp_path, services) as service,
    ):
        url = f"http://127.0.0.1:{service.port}/"
        with open_page(url, tmp_path / "wide", 1280, "light") as page:
            page.wait_for_selector("text=No forecast yet")
            # Until the first answer the page says that it connects, not that there is no forecast.
            page.route("**/api/runs?*", lambda _: None)
            page.reload()
            expect(page.locator("#waiting-word")).to_have_text("Connecting …", timeout=WAIT)
            page.unroute("**/api/runs?*")
            page.reload()
            page.wait_for_selector("text=No forecast yet")
            publish_port(tmp_path / "demo", "trainer", trainer.port)
            for reading in points[:12]:
                trainer.show(reading)
                service.wait_points(reading.step // 10 + 1) if reading.step else None
            wait_marks(page, "#curve", "point", 12)
            said = service.forecast()
            assert said is not None
            expect(page.locator("#asymptote")).to_have_text(
                f"{said['asymptote']['q50']:.3f}", timeout=WAIT
            )
            # The evidence is one click below the advice.
            assert said["reason"] == page.text_content("#verdict-reason")
            expect(page.locator("#verdict-reason")).to_be_hidden(timeout=WAIT)
            page.click("#evidence summary")
            expect(page.locator("#verdict-reason")).to_be_visible(timeout=WAIT)
            # A new evaluation appears by itself.
            for reading in points[12:18]:
                trainer.show(reading)
            wait_marks(page, "#curve", "point", 18)
            # Why groups are of no use is on the page as soon as the trainer counts it.
            trainer.exporter.add(trainer_metrics.GROUP_SIGNALS, 12.0, signal="right")
            expect(page.locator("#groups-note")).to_have_text(
                (
                    "Since the trainer started 12 groups came back, 0 usable: 12 with every answer "
                    "right."
                ),
                timeout=WAIT,
            )
            # The advice leads, and answers what is typed in.
            now = service.forecast()
            assert now is not None
            expect(page.locator("#advice-word")).to_have_text(
                now["advice"]["headline"], timeout=WAIT
            )
            page.fill("#worth", "0.9")
            expect(page.locator("#chance")).to_have_text("under 1 %", timeout=WAIT)
            page.fill("#price", "100")
            expect(page.locator("#rest-note")).to_contain_text(" for ", timeout=WAIT)
            page.fill("#worth", "")
            page.fill("#price", "")
            expect(page.locator("#advice-reason")).to_have_text(
                now["advice"]["reason"], timeout=WAIT
            )
            # The picture ends at the budget: what is typed in moves the end of the bands.
            expect(page.locator("#end-note")).to_contain_text(
                f"at {now['advice']['budget']:.3g} device-hours", timeout=WAIT
            )
            page.fill("#budget", "0.9")
            expect(page.locator("#end-note")).to_contain_text("at 0.9 device-hours", timeout=WAIT)
            band = service.client.get("/api/runs/demo/curve?until=0.9").json()
            expect(page.locator("#end")).to_have_text(f"{band['q50'][-1]:.3f}", timeout=WAIT)
            page.fill("#budget", "")
            # What was said of the end earlier is next to it: the present forecast and those of up
            # to three quarters.
            expect(page.locator("#said-text")).to_contain_text(
                "After 75 % of the compute so far: 0.", timeout=WAIT
            )
            assert marks(page, "#said", "earlier") > 1
            # The slider asks what the API answers.
            page.fill("#target", "0.7")
            expect(page.locator("#target-value")).to_have_text("0.700", timeout=WAIT)
            target = service.client.get("/api/runs/demo/target?pass_rate=0.7").json()["compute"][
                "q50"
            ]
            expect(page.locator("#target-answer")).to_have_text(
                f"{target:.3f} device-hours in all", timeout=WAIT
            )
            # An earlier forecast is drawn over the present one, from the keyboard.
            page.focus("#earlier")
            for _ in range(8):
                page.keyboard.press("ArrowLeft")
            page.wait_for_function("() => document.getElementById('earlier-answer').textContent")
            assert marks(page, "#curve", "earlier") > 0
            expect(page.locator("#earlier-answer")).to_contain_text("Forecast then")
            page.check("#log")
            assert marks(page, "#curve", "point") > 1
            page.uncheck("#log")
            assert page.inner_text("#staleness-note").startswith("Share of trained tokens")
            assert "rollouts are cut" in page.inner_text("#truncation-note")
            assert marks(page, "#truncation", "point") > 1
            page.click("#tables summary")
            assert page.locator("#points tbody tr").count() == 18
            assert page.inner_text("#points tbody tr:last-child td:last-child") == "5.4 %"
            # Every control has a name that a screen reader can say.
            unnamed = page.eval_on_selector_all(
                "input, select",
                "nodes => nodes.filter(n => !(n.labels && n.labels.length)).map(n => n.id)",
            )
            assert unnamed == []
            # The charts are named by what they show, the keyboard reaches everything, and the
            # tables hold the digits.
            for name in (
                r"Pass rate 0\.\d+ at .* Forecast ceiling 0\.\d+",
                "Ceiling A as forecast at 13",
                "Share of",
                "Now 5",
            ):
                assert page.get_by_role("img", name=re.compile(name)).count() == 1, name
            page.evaluate("document.activeElement.blur()")
            reached = set()
            for _ in range(19):
                page.keyboard.press("Tab")
                reached.add(
                    page.evaluate("document.activeElement.id || document.activeElement.tagName")
                )
            assert {"run", "log", "target", "earlier", "SUMMARY"} <= reached
            band = service.client.get(
                f"/api/runs/demo/curve?until={now['advice']['budget']}"
            ).json()
            shown = page.locator("#ahead tbody tr:last-child > *").all_inner_texts()
            assert shown[1:] == [f"{band[q][-1]:.3f}" for q in ("q05", "q25", "q50", "q75", "q95")]
            assert page.locator("#said-table tbody tr").count() == 17
            # It is drawn anew where the colour scheme changes.
            page.emulate_media(color_scheme="dark")
            wait_marks(page, "#curve", "point", 18)
            for width, scheme in ((390, "dark"), (390, "light"), (1280, "dark")):
                show_anew(page, width, scheme)
                page.click("#evidence summary")
                page.wait_for_selector("#staleness canvas")
                overflow = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert overflow <= 0, "the page must not scroll sideways"
                assert page.evaluate(LOW_CONTRAST) == []
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (background == "rgb(15, 18, 21)") == (scheme == "dark")


def test_several_runs_are_compared_and_an_absent_service_is_told(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with TrainerPage() as first, TrainerPage("low-rate") as second:
        urls = [f"http://127.0.0.1:{page.port}/metrics" for page in (first, second)]
        for one, two in zip(record()[:16], record(asymptote=0.6, seed=2)[:16], strict=True):
            first.show(one)
            second.show(two)
        source = {"kind": "scrape", "every_seconds": 0.2, "urls": urls}
        config = run_file(
            tmp_path, source, forecaster={"source": source, "http_port": free_port("127.0.0.1")}
        )
        with running(config, tmp_path, services) as service:
            service.wait_points(16)
            service.wait_points(16, "low-rate")
            with sync_playwright() as playwright:
                context = playwright.chromium.launch_persistent_context(
                    str(tmp_path / "profile"), executable_path=CHROMIUM, args=FLAGS
                )
                page = context.pages[0]
                page.goto(f"http://127.0.0.1:{service.port}/")
                page.wait_for_selector("#curve canvas")
                page.check("#compare input")
                wait_marks(page, "#curve", "point", 16)
                page.wait_for_selector(".swatch.run-1")
                assert marks(page, "#curve", "run-1") > 0
                # The other run goes on learning, and its curve with it.
                before = page.evaluate(SEEN)
                for reading in record(asymptote=0.6, seed=2)[16:18]:
                    second.show(reading)
                page.wait_for_function(f"before => ({SEEN})() !== before", arg=before, timeout=WAIT)
                page.select_option("#run", "low-rate")
                wait_marks(page, "#curve", "point", 18)
                low = service.forecast("low-rate")
                assert low is not None
                expect(page.locator("#asymptote")).to_have_text(
                    f"{low['asymptote']['q50']:.3f}", timeout=WAIT
                )
                service.stop()
                page.wait_for_selector("#source.away")
                assert page.inner_text("#asymptote") == f"{low['asymptote']['q50']:.3f}"
                # The page finds the service again where it is started anew, and what is new.
                second.show(record(asymptote=0.6, seed=2)[18])
                with running(config, tmp_path, services):
                    wait_marks(page, "#curve", "point", 19)
                    page.wait_for_selector("#source.up")
                context.close()


def test_runs_of_one_unit_are_compared_and_a_curve_without_a_law_gets_no_line(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    forecaster = {
        "source": {"kind": "scrape", "every_seconds": 0.2},
        "http_port": 0,
        "push_token": "a secret",
    }
    healthy = [
        {"step": r.step, "pass_rate": r.pass_rate, "standard_error": 0.01} for r in record()[1:18]
    ]
    jumped = [
        point | {"pass_rate": point["pass_rate"] + 0.15 * (place >= 9)}
        for place, point in enumerate(healthy)
    ]
    with running(run_file(tmp_path, {}, forecaster=forecaster), tmp_path, services) as service:
        for run, unit, points in (
            ("a", "steps", healthy),
            ("b", "tokens", healthy),
            ("c", "steps", jumped),
        ):
            body = {"run": run, "unit": unit, "points": points}
            answer = service.client.post(
                "/api/push", json=body, headers={"authorization": "Bearer a secret"}
            )
            assert answer.status_code == 200, answer.text
        said = service.forecast("c")
        assert said is not None
        assert said["verdict"] == "regime_change"
        with open_page(
            f"http://127.0.0.1:{service.port}/", tmp_path / "units", 1280, "light"
        ) as page:
            wait_marks(page, "#curve", "point", 17)
            others, legend = page.locator("#compare label"), page.locator("#legend")
            assert others.all_inner_texts() == ["c"]
            expect(legend).to_contain_text("fitted law", timeout=WAIT)
            assert marks(page, "#curve", "fit") > 0
            page.click("#evidence summary")
            expect(page.locator("#target-note")).to_contain_text("Chance to reach it", timeout=WAIT)
            page.check("#compare input")
            expect(legend.locator(".swatch.run-1.point")).to_have_count(1, timeout=WAIT)
            page.select_option("#run", "b")
            expect(page.locator("#now-note")).to_contain_text("tokens", timeout=WAIT)
            expect(page.locator("#compare")).to_be_hidden(timeout=WAIT)
            expect(legend.locator(".swatch.run-1")).to_have_count(0, timeout=WAIT)
            page.select_option("#run", "c")
            expect(page.locator("#verdict-word")).to_have_text(
                "Verdict: regime change.", timeout=WAIT
            )
            expect(legend).not_to_contain_text("fitted law", timeout=WAIT)
            # Nothing is shown of what is not known: neither a ceiling nor a way to a target.
            for name in ("target-part", "ceiling-tile"):
                expect(page.locator(f"#{name}")).to_be_hidden(timeout=WAIT)
            # A card that is empty says why.
            for name, why in (
                ("target-note", "no law describes this curve (regime change)"),
                ("staleness-note", "this run's source reports no staleness"),
                ("truncation-note", "this run's source reports no truncated rollouts"),
            ):
                expect(page.locator(f"#{name}")).to_contain_text(why, timeout=WAIT)
            # The part after the jump is forecast, so the rest has a gain.
            expect(page.locator("#rest-note")).to_contain_text("170 steps", timeout=WAIT)
            expect(page.locator("main")).not_to_contain_text("–", timeout=WAIT, use_inner_text=True)
            assert others.all_inner_texts() == ["a"]
            # Of a verdict that forecasts nothing, nothing is shown beyond now, whatever numbers the
            # answer holds.
            for verdict, headline, shown in (
                ("broken", "Stop", "Stop"),
                ("too_few", None, "Too few evaluations"),
            ):
                page.route("**/api/runs?*", answered_with(verdict, headline))
                page.reload()
                expect(page.locator("#advice-word")).to_have_text(shown, timeout=WAIT)
                wait_marks(page, "#curve", "point", 17)
                assert marks(page, "#curve", "fit") == 0
                for name in ("end-tile", "said-part"):
                    expect(page.locator(f"#{name}")).to_be_hidden(timeout=WAIT)
                assert (
                    page.text_content("#ahead tbody")
                    == "Nothing is forecast beyond the newest evaluation."
                )
                page.unroute("**/api/runs?*")


def answered_with(verdict: str, headline: str | None) -> Callable[[Any], None]:
    """The service's answer with another verdict on run c."""

    def fulfil(route: Any) -> None:
        with suppress(Error):  # the page gives up the request under way when it is loaded again
            answer = route.fetch()
            body = answer.json()
            for run in body["runs"]:
                if run["run"] == "c":
                    run["verdict"] = verdict
                    run["has_forecast"] = False
                    run["advice"]["headline"] = headline
            route.fulfill(response=answer, json=body)

    return fulfil


CUT_AT_THE_RIGHT = """() => [...document.querySelectorAll(".chart canvas")].filter((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(canvas.width - 1, 0, 1, canvas.height);
  return data.some((value, place) => place % 4 === 3 && value > 0);
}).length"""
"""Charts that paint up to their very edge, as a label does that is cut."""
TERMS = """() => [...document.querySelectorAll("#terms input")].map((input) => {
  const pen = document.createElement("canvas").getContext("2d"), look = getComputedStyle(input);
  pen.font = look.font;
  const room = input.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight);
  return [input.placeholder, pen.measureText(input.placeholder).width <= room];
})"""


@pytest.mark.timeout(120)
def test_the_last_tick_and_the_assumed_budget_are_whole(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """The assumed budget is twice the newest step, and the axis ends there: a tick stands at its
    very end.
    """
    forecaster = {
        "source": {"kind": "scrape", "every_seconds": 0.2},
        "http_port": 0,
        "push_token": "a secret",
    }
    points = [
        {"step": step, "pass_rate": 0.1 + 0.5 / (1 + 400 / step)}
        for step in range(50_000, 1_000_001, 50_000)
    ]
    with running(run_file(tmp_path, {}, forecaster=forecaster), tmp_path, services) as service:
        body = {"run": "theirs", "unit": "steps", "points": points}
        assert service.client.post(
            "/api/push", json=body, headers={"authorization": "Bearer a secret"}
        ).is_success
        service.wait_points(len(points), "theirs")
        counted = {
            "run": "tokens",
            "unit": "tokens",
            "points": [p | {"compute": 4e3 * p["step"]} for p in points],
        }
        assert service.client.post(
            "/api/push", json=counted, headers={"authorization": "Bearer a secret"}
        ).is_success
        with open_page(
            f"http://127.0.0.1:{service.port}/", tmp_path / "profile", 1280, "light"
        ) as page:
            for width in (1280, 390):
                show_anew(page, width, "light")
                page.select_option("#run", "theirs")  # a browser keeps what was chosen
                expect(page.locator("#budget-label")).to_have_text("Total budget, assumed (steps)")
                expect(page.locator("#price-label")).to_have_text("Price per step", timeout=WAIT)
                assert page.evaluate(TERMS) == [
                    ["2,000,000", True],
                    ["0.020", True],
                    ["none", True],
                ]
                assert page.evaluate(CUT_AT_THE_RIGHT) == 0
                page.select_option("#run", "tokens")
                expect(page.locator("#price-label")).to_have_text("Price per token", timeout=WAIT)
                assert page.evaluate(TERMS) == [["8B", True], ["0.020", True], ["none", True]]
                assert page.evaluate(CUT_AT_THE_RIGHT) == 0
