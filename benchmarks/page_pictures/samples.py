"""The samples card of the live page with an episode, in light and on a phone in dark."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rollcast.runfolder import files
from rollcast.runfolder.records import as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.browser import WAIT, open_page
from testkit.forecaster.recorded_service import serving_a_record
from testkit.forecaster.sampled_episodes import samples

LOOKS = {"light": (1080, "light"), "phone-dark": (390, "dark")}
HEIGHT = 900
STEP = 320


def draw_samples(folder: Path) -> bytes:
    """Write FOLDER/samples-LOOK.png, and return the one in light."""
    pictures = {}
    with tempfile.TemporaryDirectory() as name, serving_a_record(Path(name)) as service:
        append_line(Path(name) / "demo" / files.SAMPLES, as_json(samples(STEP)))
        with open_page(
            f"http://127.0.0.1:{service.port}/", Path(name) / "profile", *LOOKS["light"]
        ) as page:
            page.click("#samples summary")
            page.wait_for_selector("#sample .turn", timeout=WAIT)
            for look, (width, scheme) in LOOKS.items():
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": HEIGHT})
                pictures[look] = page.locator("#samples").screenshot(
                    path=str(folder / f"samples-{look}.png")
                )
    return bytes(pictures["light"])
