"""`rollcast show --page`: the page of a run that is over."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

from rollcast.local.run_page import served_page
from testkit.forecaster.browser import NEEDS_CHROMIUM, open_page
from tests.cli.command import refusal, rollcast
from tests.cli.run_folders import ended_early, settings, trained


@pytest.mark.browser
@NEEDS_CHROMIUM
def test_the_page_of_a_run_that_is_over_says_so(tmp_path: Path) -> None:
    config = settings(tmp_path)
    trained(config, 150)
    with (
        served_page(config.run_folder) as (address, _),
        open_page(address, tmp_path / "profile", 1280, "light") as page,
    ):
        page.wait_for_selector("#source.up")
        assert page.text_content("#source") == "the run has ended"


def test_the_page_of_a_run_that_is_over_is_served_again_and_changes_nothing_in_its_folder(
    tmp_path: Path,
) -> None:
    config = settings(tmp_path)
    trained(config, 150)
    ended_early(config)
    before = {path.name: path.stat().st_mtime_ns for path in config.run_folder.iterdir()}
    config.run_folder.chmod(0o500)
    with served_page(config.run_folder) as (address, service):
        assert "<html" in httpx.get(address, timeout=30).text
        deadline = time.monotonic() + 60
        while not (runs := httpx.get(f"{address}/api/runs", timeout=30).json())["runs"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert (runs["source"]["up"], runs["source"]["message"]) == (True, "the run has ended")
        (shown,) = runs["runs"]
        assert service.running
    config.run_folder.chmod(0o700)
    assert not service.running
    assert {path.name: path.stat().st_mtime_ns for path in config.run_folder.iterdir()} == before
    fitted = json.loads(rollcast("fit", config.run_folder, "--json").stdout)
    assert shown["verdict"] == fitted["verdict"]
    for name in ("kind", "reason", "level", "is_assumed"):
        assert shown["advice"][name] == fitted["advice"][name], name


def test_the_page_of_a_run_without_a_curve_is_one_sentence(tmp_path: Path) -> None:
    config = settings(tmp_path)
    assert "holds no evaluations.jsonl" in refusal("show", str(config.run_folder), "--page")
