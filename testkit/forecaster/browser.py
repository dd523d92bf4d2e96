"""The live page in a real browser without a screen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a Chromium browser (Debian package chromium)"
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT = 30_000
"""Milliseconds."""
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
    const ink = numbers(getComputedStyle(node).color);
    const [dark, light] = [luminance(ink), luminance(behind(node))].sort((a, b) => a - b);
    return [(light + 0.05) / (dark + 0.05), node.textContent];
  }).filter(([ratio]) => ratio < 4.5);
}"""  # noqa: E501
"""Texts whose contrast is below the 4.5 that the Web Content Accessibility Guidelines (level AA)
ask for."""
SCREENSHOTS = os.environ.get("ROLLCAST_SCREENSHOTS")
"""Folder in which pictures of the page are left for looking at."""


@contextmanager
def open_page(url: str, profile: Path, width: int, scheme: str) -> Iterator[Any]:
    """A page of the given width; errors in its console and requests
    to other hosts fail the test.
    """
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
        )
        page = context.pages[0]
        complaints: list[str] = []
        requested_urls: set[str] = set()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type == "error" else None,
        )
        page.on("request", lambda request: requested_urls.add(request.url))
        page.goto(url)
        yield page
        if SCREENSHOTS:
            page.screenshot(path=f"{SCREENSHOTS}/page-{width}-{scheme}.png", full_page=True)
        context.close()
        assert complaints == []
        assert [
            address for address in requested_urls if not address.startswith((url, "data:"))
        ] == []


_MARKS = """([chart, name]) => {
  const canvas = document.querySelector(`${chart} canvas`);
  if (!canvas) return 0;
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const wanted = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const isPainted = (x) => {
    for (let at = 4 * x; at < data.length; at += 4 * width)
      if (data[at + 3] === 255 && wanted.every((value, place) => Math.abs(data[at + place] - value) < 6)) return true;
    return false;
  };
  let groups = 0;
  for (let x = 0, before = false; x < width; x += 1) {
    const now = isPainted(x);
    groups += now && !before;
    before = now;
  }
  return groups;
}"""  # noqa: E501


def marks(page: Any, chart: str, colour: str) -> int:
    """Marks in a colour of the style sheet that the canvas of `chart` shows side by side; a whole
    line is one.
    """
    return int(page.evaluate(_MARKS, [chart, colour]))


def wait_marks(page: Any, chart: str, colour: str, count: int) -> None:
    """Until the canvas shows that many."""
    condition_script = f"([chart, colour, count]) => ({_MARKS})([chart, colour]) === count"
    page.wait_for_function(condition_script, arg=[chart, colour, count], timeout=WAIT)
