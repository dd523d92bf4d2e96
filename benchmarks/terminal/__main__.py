"""Pictures of the terminal at three sizes: a real run in its start, and under way after a generator
was killed.

    python -m benchmarks.terminal [--steps 40]

The demo's task. The run's folder is read as `rollcast show` reads it and drawn by the panel that
`up` draws; Rich makes an SVG of it, Chromium a PNG: docs/images/terminal-*.png. Needs the Debian
package chromium; takes some minutes.
"""

from __future__ import annotations

import argparse
import io
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import yaml
from PIL import Image
from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from benchmarks.short_demo import short_demo
from rollcast.cli.screen.panel import Screen, panel
from rollcast.cli.show import look_at
from rollcast.connections.port_files import port_file
from rollcast.local.status import StatusReader
from testkit.forecaster.browser import CHROMIUM, FLAGS
from testkit.system.command import goes_on, last_step, rollcast
from testkit.system.harness import wait_for

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZES = ((80, 24), (120, 40), (60, 24))
"""A terminal's first size, a large one, and a narrow window."""
RUN = "demo"
LIMIT_SECONDS = 900.0
COLOURS, SCALE = 128, 0.75
FONT = "DejaVu Sans Mono"


def observe(folder: Path, steps: int) -> dict[str, Screen]:
    """The two moments of one run."""
    (folder / "run.yaml").write_text(yaml.safe_dump({**short_demo(RUN, steps), "folder": "runs"}))
    run = folder / "runs" / RUN
    with rollcast(folder, "up", "--config", "run.yaml") as up:
        wait_for(
            lambda: goes_on(up, folder) and port_file(run, "trainer").exists(),
            LIMIT_SECONDS,
            "the trainer",
        )
        moments = {"start": look_at(run)}
        wait_for(
            lambda: goes_on(up, folder) and last_step(run) >= steps // 2,
            LIMIT_SECONDS,
            "half of the steps",
        )
        reader = StatusReader(moments["start"].config, one_look=True)
        reader.read()  # tokens a second are counted from one reading to the next
        _generator(up.pid).kill()
        killed_at = last_step(run)
        # The engine starts again in the meantime: some steps later the run is whole again, and the
        # error is shown.
        wait_for(
            lambda: goes_on(up, folder) and last_step(run) >= killed_at + 8,
            LIMIT_SECONDS,
            "some steps more",
        )
        moments["error"] = replace(look_at(run), status=reader.read())
    return moments


def _generator(command: int) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(command).children()
        if "rollcast.generator" in child.cmdline()
    )


def draw(screen: Screen, columns: int, lines: int, path: Path) -> None:
    """A whole screen as a PNG; its last line is the cursor's."""
    console = Console(
        record=True, width=columns, height=lines, file=io.StringIO(), force_terminal=True,
        color_system="truecolor",
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    picture = panel(screen, columns, lines - 1)
    console.print(picture)
    console.print("\n" * (lines - 2 - picture.plain.count("\n")), end="")
    no_download = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    svg = console.export_svg(
        title=f"{columns} x {lines}",
        code_format=no_download.replace("Fira Code", FONT),
        unique_id="terminal",
    )
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = (round(float(size)) for size in found.groups())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(
            viewport={"width": width, "height": height}, device_scale_factor=SCALE
        )
        page.set_content(f"<style>body{{margin:0}}</style>{svg}")
        shot = page.screenshot()
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.terminal", description="Draw the terminal."
    )
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps of the run's budget")
    with tempfile.TemporaryDirectory() as folder:
        moments = observe(Path(folder), parser.parse_args().steps)
    for moment, screen in moments.items():
        for columns, lines in SIZES:
            picture = IMAGES / f"terminal-{moment}-{columns}x{lines}.png"
            draw(screen, columns, lines, picture)
            print(
                f"{picture.relative_to(IMAGES.parents[1])}: {picture.stat().st_size / 1000:.0f} kB"
            )


if __name__ == "__main__":
    main()
