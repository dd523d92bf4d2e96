"""Pictures of the live page and of the commands' plots, of eight kinds of run.

    python -m benchmarks.page_pictures FOLDER [--docs]

The page of each run whole, light and dark at desktop width and light on a phone, with its evidence
closed and (on a phone and in light) open; the samples of an episode; then every plot of `fit`,
`backtest`, `compare` and `plan`. `--docs` also draws those of docs/images/, of which most are cut
to what the eye meets first. A real forecaster reads seven of the runs from trainers' metrics pages;
the eighth is pushed. A real Chromium draws them. Nothing is measured.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.page_pictures.plots import draw_plots
from benchmarks.page_pictures.samples import draw_samples
from rollcast.telemetry import trainer_metrics
from testkit.forecaster.browser import WAIT, open_page
from testkit.forecaster.page_states import FOREIGN, State, make_push_request, page_states
from testkit.forecaster.recorded_run import KEPT, TrainerPage, run_file
from testkit.forecaster.service_process import Service, running

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}
OPENED_LOOKS = ("light", "phone")
"""Looks in which the page is drawn with its evidence open as well."""
WHOLE_IN_DOCS = "rising"
"""docs/images/live-page.png; of the others docs/ shows advice and curve."""
IN_DOCS = ("saturating", "no ceiling", "collapsed", "two evaluations", "foreign")
DOCS_WIDTH, BELOW = 1080, -2
HEIGHT = 900
COLOURS = 256
"""Colours of a picture: a palette takes a quarter of the room, and a smaller one loses the few
orange pixels."""
TOKEN = "a secret"  # of a forecaster that lives as long as this program
PATIENCE_SECONDS = 180.0
SETTLED_MILLISECONDS = 700


@contextmanager
def served(states: dict[str, State]) -> Iterator[Service]:
    """The forecaster, once it has read every run, as they would have grown."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        own = [state for state in states.values() if state.run != FOREIGN]
        pages = {state.run: stack.enter_context(TrainerPage(state.run)) for state in own}
        urls = [f"http://127.0.0.1:{page.port}/metrics" for page in pages.values()]
        source = {"kind": "scrape", "every_seconds": 0.2, "urls": urls}
        forecaster = {"source": source, "http_port": 0, "push_token": TOKEN}
        service = stack.enter_context(running(run_file(folder, {}, forecaster=forecaster), folder))
        for state in own:
            pages[state.run].exporter.set(trainer_metrics.BUDGET_DEVICE_HOURS, state.budget)
            readings = state.readings()
            for first in range(0, len(readings), KEPT):
                for reading in readings[first : first + KEPT]:
                    pages[state.run].show(reading)
                service.wait_points(min(first + KEPT, len(readings)), state.run)
        foreign = next(state for state in states.values() if state.run == FOREIGN)
        answer = service.client.post(
            "/api/push",
            json=make_push_request(foreign),
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE_SECONDS,
        )
        assert answer.is_success, answer.text
        service.wait_points(len(foreign.compute), FOREIGN)
        yield service


def small(picture: bytes, path: Path) -> None:
    """Write a PNG with a palette."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def draw(page: Any, name: str, folder: Path) -> None:
    """The run that is shown, in every look."""
    for look, (width, scheme) in LOOKS.items():
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.wait_for_timeout(SETTLED_MILLISECONDS)
        page.screenshot(path=str(folder / f"{name}-{look}.png"), full_page=True)
        if look in OPENED_LOOKS:
            page.click("#evidence summary")
            page.wait_for_timeout(SETTLED_MILLISECONDS)
            page.screenshot(path=str(folder / f"{name}-{look}-evidence.png"), full_page=True)
            page.click("#evidence summary")


def draw_for_docs(page: Any, name: str) -> None:
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": DOCS_WIDTH, "height": HEIGHT})
    page.wait_for_timeout(SETTLED_MILLISECONDS)
    if name == WHOLE_IN_DOCS:
        small(page.screenshot(full_page=True), IMAGES / "live-page.png")
        return
    bottom = page.evaluate(
        "document.getElementById('curve').getBoundingClientRect().bottom + scrollY"
    )
    clip = {"x": 0, "y": 0, "width": DOCS_WIDTH, "height": bottom + BELOW}
    small(page.screenshot(full_page=True, clip=clip), IMAGES / f"page-{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page_pictures", description="Draw the live page."
    )
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--docs", action="store_true", help="draw those of docs/images/ as well")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    states = page_states()
    with served(states) as service, tempfile.TemporaryDirectory() as profile:
        url = f"http://127.0.0.1:{service.port}/"
        with open_page(url, Path(profile), *LOOKS["light"]) as page:
            for name, state in states.items():
                page.goto(f"{url}?run={state.run}")
                page.wait_for_selector("#curve canvas", timeout=WAIT)
                draw(page, name.replace(" ", "-"), arguments.folder)
                if arguments.docs and name in (WHOLE_IN_DOCS, *IN_DOCS):
                    draw_for_docs(page, name.replace(" ", "-"))
    episode = draw_samples(arguments.folder)
    if arguments.docs:
        small(episode, IMAGES / "page-episode.png")
    draw_plots(states, arguments.folder)


if __name__ == "__main__":
    main()
