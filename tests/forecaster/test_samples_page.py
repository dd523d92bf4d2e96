"""A proof: the samples of the run's folder on the live page, in a real browser: an episode turn by
turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from rollcast.recorded.recorded_index import IndexEntry, RecordedIndex
from rollcast.runfolder import files
from rollcast.runfolder.event_log import note
from rollcast.runfolder.records import StepRecord, as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.browser import LOW_CONTRAST, NEEDS_CHROMIUM, WAIT, open_page
from testkit.forecaster.recorded_service import serving_a_record
from testkit.forecaster.sampled_episodes import HOSTILE, episode, samples
from testkit.forked_programs import ForkedPrograms

SIZES = ((1280, "light"), (390, "dark"))


@pytest.mark.browser
@NEEDS_CHROMIUM
def test_an_episode_is_shown_turn_by_turn(tmp_path: Path, services: ForkedPrograms) -> None:
    with serving_a_record(tmp_path, services) as service:
        url = f"http://127.0.0.1:{service.port}/"
        file = tmp_path / "demo" / files.SAMPLES
        with open_page(url, tmp_path / "profile", 1280, "light") as page:
            page.click("#samples summary")
            expect(page.locator("#samples-note")).to_contain_text("No samples yet", timeout=WAIT)
            page.click("#samples summary")
            step = StepRecord(
                20, episode_turns_mean=3.25, episode_calls_mean=2.5, environment_seconds_share=0.63
            )
            append_line(file.with_name(files.STEPS), as_json(step))
            note(file.parent, "generator-0 was removed: silent <b>", trouble=True)
            expect(page.locator("#events")).to_contain_text(
                "! generator-0 was removed: silent <b>", timeout=WAIT
            )
            expect(page.locator("#episodes-note")).to_have_text(
                (
                    "Newest batch: 3.2 turns and 2.5 calls an episode, 63% of their time in "
                    "environments."
                ),
                timeout=WAIT,
            )
            (file.parent / "recorded").mkdir()
            entry = IndexEntry("step-15", 15, [], 0.0, num_bytes=9)
            RecordedIndex([entry]).write(file.parent)
            append_line(file, as_json(samples(10)))
            append_line(file, as_json(samples(20)))
            page.click("#samples summary")
            expect(page.locator("#sampled-evaluation option")).to_have_text(
                ["worlds, step 20", "worlds, step 10"], timeout=WAIT
            )
            _check_episode(page)
            expect(page.locator("#sample-recorded")).to_have_text(
                "Of the steps before, 15 is the last that is recorded; compute it again with "
                f"rollcast replay {file.parent} --step 15",
                timeout=WAIT,
            )
            page.select_option("#sampled-evaluation", "1 10 worlds")
            expect(page.locator("#sample-recorded")).to_be_hidden(timeout=WAIT)
            page.select_option("#sampled-evaluation", "1 20 worlds")
            page.select_option("#sampled-prompt", "1")
            summary = page.locator("#sample-summary")
            expect(summary).to_contain_text(
                "the environment failed: tool run: no answer within 30 s", timeout=WAIT
            )
            expect(summary).to_contain_text("no verdict (ungraded)", timeout=WAIT)
            page.select_option("#sampled-prompt", "2")
            expect(page.locator("#sample .turn")).to_have_count(2, timeout=WAIT)
            expect(page.locator("#sample")).to_contain_text(f"9, {HOSTILE}", timeout=WAIT)
            assert page.title() == "Rollcast forecast", "no text of a model may run as a program"
            page.select_option("#sampled-prompt", "0")
            for width, scheme in SIZES:
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                overflow = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert overflow <= 0, "the page must not scroll sideways"
                assert page.evaluate(LOW_CONTRAST) == []


def _check_episode(page: Any) -> None:
    expect(page.locator("#sample-summary")).to_have_text(
        "calculator: reward 1, 6 turns, 2 calls, the model answered; environment 13 s, sampling "
        "3.3 s, begun again 1 time",
        timeout=WAIT,
    )
    blocks = page.locator("#sample .turn")
    assert [text.split("\n")[0] for text in blocks.all_inner_texts()] == [
        "Prompt",
        "Turn 1",
        "Turn 2",
        "Turn 5",
        "Turn 6",
    ]
    first, second, fifth, sixth = (blocks.nth(place) for place in (1, 2, 3, 4))
    # Given text is grey, a forced phrase is underlined, a malformed call marks its turn.
    assert "204" in first.locator(".given").inner_text()
    assert "Time is up" in "".join(first.locator(".masked").all_inner_texts())
    assert page.locator("#sample .turn.bad").all_inner_texts() == [second.inner_text()]
    expect(second.locator(".mark.bad")).to_have_text("1 malformed", timeout=WAIT)
    # The version is said where it changes, and a token's own on pointing at it.
    assert first.locator(".version").all_inner_texts() == ["3.41"]
    assert second.locator(".version").all_inner_texts() == ["3.42"]
    first.locator("[data-said]").first.hover()
    logprob = episode().turns[0].legs[0].logprobs[0]
    said = f'"<think>": log-prob {logprob:.3f}, version 3.41'
    expect(page.locator("#token-readout")).to_have_text(said, timeout=WAIT)
    # What is left out is said, and a branch shows what it began with.
    expect(page.locator("#sample")).to_contain_text("2 turns left out", timeout=WAIT)
    expect(fifth).to_contain_text("… 412 tokens …", timeout=WAIT)
    expect(fifth).to_contain_text(HOSTILE, timeout=WAIT)
    expect(sixth.locator(".mark.warn")).to_contain_text("a sequence of its own", timeout=WAIT)
    assert "51 of them sold" in sixth.locator(".given").inner_text()
