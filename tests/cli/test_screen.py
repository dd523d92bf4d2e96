"""A run's picture: it fits every screen, errors come first, the curve is where the numbers say."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from rollcast.cli.screen import figures
from rollcast.cli.screen.curve import LABEL_COLUMNS, draw_curve
from rollcast.cli.screen.panel import BAR_COLUMNS, Screen, flow, panel
from rollcast.config.run import load_run_config
from rollcast.local.forecast_reading import AdviceReading, ForecastReading
from rollcast.local.progress import Pace, Phase
from rollcast.local.status import RunStatus
from rollcast.runfolder.episode_words import episodes_in_words
from rollcast.runfolder.event_log import RunEvent
from rollcast.runfolder.records import EvaluationRecord, StepRecord

CONFIG = load_run_config(Path(__file__).parents[2] / "configs/demo.yaml")
NOW = 1_800_000_000.0
POINTS = tuple(
    EvaluationRecord(1, 8 * i, 0.1 + i / 20, i / 100, standard_error=0.01) for i in range(11)
)
FORECAST = ForecastReading(
    "too_early",
    (0.8, 0.9, 0.95),
    (0.7, 0.8, 0.85),
    0.2,
    11,
    ((0.05, 0.3, 0.35, 0.4), (0.1, 0.55, 0.6, 0.65), (0.2, 0.7, 0.8, 0.85), (0.4, 0.75, 0.85, 0.9)),
    AdviceReading("wait", 3, 0.4, (0.05, 0.1, 0.2)),
)
RUNNING = RunStatus(
    step=80,
    budget_share=0.4,
    reward_mean=0.55,
    compute_device_hours=0.1,
    evaluations=POINTS,
    staleness={0: 10, 1: 30},
    tokens_per_second=12_345.6,
    generators_ready=1,
    forecast=FORECAST,
    is_started=True,
    pace=Pace(3.2, NOW + 2, NOW + 12, NOW + 3700),
)
PHASES = (
    Phase("trainer reads the model", NOW - 9, NOW - 2),
    Phase("engine starts", NOW - 9, None),
    Phase("first weights", None, None),
)
STARTING = RunStatus(budget_share=0.0, phases=PHASES)
TWO_PM = time.mktime((2026, 1, 5, 14, 0, 0, 0, 0, -1))
EVENTS = [RunEvent(TWO_PM + second, f"step {second}: pass rate 0.5") for second in range(30)]
TROUBLE = RunEvent(TWO_PM - 3600, "generator-0 killed by SIGKILL; starting it again", trouble=True)


def screen(status: RunStatus, events: list[RunEvent]) -> Screen:
    state = "running for 5 s" if status.is_started else "starting for 9 s"
    return Screen(CONFIG, status, events, state, "http://127.0.0.1:8400", NOW)


def shown(status: RunStatus, events: list[RunEvent], width: int, height: int) -> list[str]:
    return panel(screen(status, events), width, height).plain.split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 23), (120, 39), (60, 23), (40, 15), (20, 5)])
@pytest.mark.parametrize("status", [RUNNING, STARTING, RunStatus()])
def test_a_picture_never_exceeds_its_screen(status: RunStatus, width: int, height: int) -> None:
    long = RunEvent(TWO_PM + 60, "a word " * 60 + "and-one-without-any-space-" * 10)
    lines = shown(status, [*EVENTS, long], width, height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert not any("..." in line or "…" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 23), (120, 39), (60, 23)])
def test_what_matters_is_on_the_three_usual_screens(width: int, height: int) -> None:
    text = " ".join(" ".join(shown(RUNNING, [TROUBLE, *EVENTS], width, height)).split())
    for words in (
        f"step 80 of {CONFIG.budget.steps}",
        "3.2 s a step",
        "next evaluation in 12 s",
        f"end in 1 h 01 min ({time.strftime('%H:%M', time.localtime(NOW + 3700))})",
        "12,346 tokens/s",
        "pass rate 0.600 ± 0.010 at step 80",
        "too early · end 0.800 [0.700, 0.850]",
        "wait for 3 more evaluations: the rest gains 0.100 [0.050, 0.200], worth it with 40 %",
        "! 13:00:00 generator-0 killed by SIGKILL",
        "step 29: pass rate 0.5",
    ):
        assert words in text, words
    assert "too_early" not in text


def test_errors_stand_before_events_that_came_later() -> None:
    lines = shown(RUNNING, [TROUBLE, *EVENTS], 80, 23)
    of_events = [line for line in lines if line[2:4] in ("13", "14")]
    assert of_events[0].startswith("! 13:00:00")
    assert of_events[1].startswith("  14:00:29"), "then the newest"
    assert len(of_events) >= 3


def test_an_error_is_seen_on_the_smallest_of_screens() -> None:
    assert "! 13:00:00" in "".join(shown(RUNNING, [TROUBLE, *EVENTS], 40, 8))


def test_fewer_than_five_evaluations_give_no_law_whatever_the_forecaster_says() -> None:
    """The one before the first step does not count: its page has numbers from the second reading
    on.
    """
    few = replace(RUNNING, evaluations=POINTS[:5], forecast=replace(FORECAST, num_points=5))
    text = " ".join(" ".join(shown(few, [], 120, 39)).split())
    assert "too few: 4 of the 5 evaluations that a forecast needs" in text
    assert not [word for word in ("advice", "worth it", "ceiling", "end 0.8") if word in text]
    assert text.count("░") == BAR_COLUMNS - 8, "of the bar alone"
    enough = replace(RUNNING, evaluations=POINTS[:6], forecast=replace(FORECAST, num_points=6))
    text = " ".join(shown(enough, [], 120, 39))
    assert "worth it with 40 %" in text
    assert text.count("░") > 100, "and the band"
    behind = replace(RUNNING, forecast=replace(FORECAST, num_points=5))
    text = " ".join(shown(behind, [], 120, 39))
    assert "the forecaster has not answered yet" in text
    assert "worth it" not in text


def test_a_wait_that_changes_no_decision_has_the_words_of_fit() -> None:
    advice = AdviceReading("wait", 1, 0.4, None, headline="Continue for 1 more evaluation")
    assert advice.sentence() == "continue for 1 more evaluation: worth it with 40 %"


def test_the_start_shows_its_phases_with_their_times() -> None:
    text = " ".join(" ".join(shown(STARTING, [], 80, 23)).split())
    assert (
        "✓ trainer reads the model: after 7 s ▸ engine starts: 9 s · first weights: waits" in text
    )
    assert "too few: 0 of the 5 evaluations" in text


def test_points_band_and_axis_stand_where_the_numbers_say() -> None:
    """The independent reading: a column is a compute between 0 and the end, a row a rate between
    the scale's ends.
    """
    width, height = 80 + LABEL_COLUMNS, 22
    lines = [line.plain.ljust(width) for line in draw_curve(POINTS, FORECAST, width, height)]
    rows, columns = height - 2, 80
    low, high = POINTS[0].pass_rate, 0.85
    for point in POINTS:
        column = round(point.compute_device_hours / 0.2 * (columns - 1))
        row = round((high - point.pass_rate) / (high - low) * (rows - 1))
        assert lines[row][LABEL_COLUMNS + column] == "●", point
    for compute, bottom, middle, top in ((0.15, 0.625, 0.7, 0.75), (0.2, 0.7, 0.8, 0.85)):
        column = LABEL_COLUMNS + round(compute / 0.2 * (columns - 1))
        inside = [row for row in range(rows) if lines[row][column] in "░─"]
        for row, rate in ((min(inside), top), (max(inside), bottom)):
            assert high - row * (high - low) / (rows - 1) == pytest.approx(rate, abs=0.04)
        (median,) = [row for row in inside if lines[row][column] == "─"]
        assert high - median * (high - low) / (rows - 1) == pytest.approx(middle, abs=0.04)
    assert not any("░" in line[: LABEL_COLUMNS + 39] for line in lines), (
        "no forecast of what was measured"
    )
    assert "0.850┤" in lines[0]
    assert "0.100┤" in lines[rows - 1]
    assert lines[-2].index("┴") == LABEL_COLUMNS + round(0.5 * (columns - 1))
    assert lines[-1].rstrip().endswith("0.2 device-hours, the end")


@pytest.mark.parametrize("width", [200, 80, 60, 50, 40, 30, 24])
@pytest.mark.parametrize("last", [1, 5, 9, 10])
def test_what_was_spent_and_the_end_stand_apart_below_the_axis(width: int, last: int) -> None:
    feet = draw_curve(POINTS[: last + 1], FORECAST, width, 12)[-1].plain
    unit = "" if width == 24 else " device-hours"
    assert re.fullmatch(rf" +0( +now 0(\.\d+)?)? +0\.2{unit}(, the end)?", feet), feet
    assert width < 50 or "now" in feet or last < 10, "where there is room"
    assert len(feet) <= width


def test_a_curve_without_a_forecast_or_without_room() -> None:
    assert draw_curve((), FORECAST, 80, 20) == []
    assert draw_curve(POINTS, None, 12, 20) == []
    flat = draw_curve(POINTS[:1], None, 80, 10)
    assert sum(line.plain.count("●") for line in flat) == 1
    assert len(flat) == 10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_read_as_one_says_them(seconds: float, words: str) -> None:
    assert figures.duration(seconds) == words


def test_items_flow_onto_further_lines_without_loss() -> None:
    items = ["alpha", "beta", "gamma", "delta"]
    lines = flow(items, 14, "x  ")
    assert lines == ["x  alpha", "   beta", "   gamma", "   delta"]
    assert flow(items, 100) == ["alpha · beta · gamma · delta"]


def test_nothing_is_promised_of_a_run_without_an_end() -> None:
    endless = replace(RUNNING, budget_share=None, pace=Pace(3.2, NOW + 2, NOW + 12, None))
    text = " ".join(shown(endless, [], 80, 23))
    assert "no end is set" in text
    assert "end in" not in text


def test_a_step_that_is_late_is_not_due_now_for_ever() -> None:
    """Three and a half minutes without a generator, as with a full disk; nothing else is due then
    either.
    """
    late = replace(RUNNING, pace=Pace(3.2, NOW - 210, NOW - 200, NOW + 100), generators_ready=0)
    waiting = replace(late, waits_for="a generator")
    assert figures.coming(waiting, NOW) == [
        "3.2 s a step",
        "next step late by 3 min 30 s, waits for a generator",
    ]
    assert figures.coming(late, NOW) == ["3.2 s a step", "next step late by 3 min 30 s"]
    soon = replace(late, pace=Pace(3.2, NOW - 2, NOW + 2, NOW + 100))
    assert figures.coming(soon, NOW)[1] == "next step now", "each step takes its own time"
    assert figures.coming(replace(soon, waits_for="the trainer"), NOW)[1:] == [
        "next step late by 2 s, waits for the trainer"
    ]
    first = replace(waiting, pace=None, stepped_at=NOW - 100)
    assert figures.coming(first, NOW) == ["no step for 1 min 40 s, waits for a generator"]
    assert figures.coming(replace(first, stepped_at=NOW - 5), NOW) == []


def test_before_the_first_step_the_picture_says_what_came_back_and_why_it_is_of_no_use() -> None:
    said = (
        "460 groups came back, 0 usable: 459 with every answer cut off, 1 with every answer wrong"
    )
    starting = replace(
        STARTING, group_signals={"usable": 0, "truncated": 459, "wrong": 1, "right": 0}
    )
    assert said in shown(starting, [], 100, 30)
    assert not [line for line in shown(STARTING, [], 100, 30) if "came back" in line]
    usable = replace(STARTING, group_signals={"usable": 1})
    assert "1 group came back, 1 usable" in shown(usable, [], 100, 30)


def test_episodes_are_told_if_there_are_any() -> None:
    step = StepRecord(
        80,
        episode_turns_mean=3.25,
        episode_calls_mean=2.5,
        malformed_calls_share=0.041,
        environment_seconds_share=0.63,
    )
    told = (
        "3.2 turns and 2.5 calls an episode · 4.1% of the calls malformed · 63% of their time in "
        "environments"
    )
    assert told in shown(replace(RUNNING, episodes=episodes_in_words(step)), EVENTS, 120, 39)
    assert not any("episode" in line for line in shown(RUNNING, EVENTS, 120, 39))
    assert episodes_in_words(StepRecord(80, episode_turns_mean=1.0, episode_calls_mean=0.0)) == (
        "1.0 turns and 0.0 calls an episode",
    )
