"""What is known of a start and of the pace, off a run's folder; what was said is kept there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.port_files import port_file, publish_port
from rollcast.local import progress
from rollcast.local.devices import num_devices
from rollcast.local.progress import Pace, StartUp, estimate_pace
from rollcast.runfolder import event_log
from rollcast.runfolder.files import EVENTS, RUN_FILE
from rollcast.runfolder.records import StepRecord

BEGAN = 1_700_000_000.0


def settings(tmp_path: Path, **more: Any) -> RunConfig:
    data = {"run": "r", "folder": str(tmp_path), "model": {"path": "m"}, "budget": {"steps": 100}}
    return parse_run_config({**data, **more}, source="test")


def at(path: Path, moment: float) -> None:
    path.touch()
    os.utime(path, (moment, moment))


def test_phases_are_read_from_when_services_told_their_ports(tmp_path: Path) -> None:
    start = StartUp(tmp_path)
    assert start.phases(is_ready=False, stepped_at=None) == ()
    at(tmp_path / RUN_FILE, BEGAN)
    publish_port(tmp_path, "generator-1", 1)
    at(port_file(tmp_path, "generator-1"), BEGAN - 50)  # of the start before
    publish_port(tmp_path, "trainer", 1)
    at(port_file(tmp_path, "trainer"), BEGAN + 7)
    phases = {phase.name: phase for phase in start.phases(is_ready=False, stepped_at=None)}
    assert phases[progress.TRAINER].seconds(BEGAN + 100) == pytest.approx(7)
    assert phases[progress.ENGINE].seconds(BEGAN + 9) == pytest.approx(9), "it lasts"
    assert phases[progress.WEIGHTS].seconds(BEGAN + 9) is None
    publish_port(tmp_path, "generator-0", 1)
    at(port_file(tmp_path, "generator-0"), BEGAN + 12)
    phases = {phase.name: phase for phase in start.phases(is_ready=False, stepped_at=BEGAN + 20)}
    assert phases[progress.ENGINE].seconds(BEGAN + 100) == pytest.approx(12)
    assert phases[progress.WEIGHTS].seconds(BEGAN + 100) == pytest.approx(8), (
        "since both were there"
    )
    assert phases[progress.STEP].done_at == BEGAN + 20


def pace_by(steps: list[StepRecord], config: RunConfig, compute_device_hours: float) -> Pace | None:
    """The pace of a run with these settings."""
    return estimate_pace(
        steps,
        config.budget,
        every_steps=config.tasks.evaluation.every_steps,
        num_devices=num_devices(config.local, config.generator),
        compute_device_hours=compute_device_hours,
    )


def test_the_pace_is_that_of_the_last_steps(tmp_path: Path) -> None:
    slow = [StepRecord(step, BEGAN + 100 * step) for step in range(1, 30)]
    quick = [StepRecord(29 + step, BEGAN + 2900 + 2 * step) for step in range(1, 22)]
    evaluation = {"evaluation": {"every_steps": 7}}
    pace = pace_by([*slow, *quick], settings(tmp_path, tasks=evaluation), 0.5)
    assert pace is not None
    last = BEGAN + 2942
    assert pace.step_seconds == pytest.approx(2.0)
    assert pace.next_step_at == pytest.approx(last + 2)
    assert pace.next_evaluation_at == pytest.approx(last + 12), "of step 56, since step 50 was made"
    assert pace.end_at == pytest.approx(last + 100)
    assert pace_by(quick[:1], settings(tmp_path), 0.5) is None, "the first step holds the start"


def test_the_first_budget_that_ends_decides(tmp_path: Path) -> None:
    steps = [StepRecord(step, BEGAN + 10 * step) for step in (1, 2, 3)]
    both = settings(
        tmp_path,
        budget={"steps": 1000, "device_hours": 1.0},
        local={"generators": 3, "trainer_ranks": 1},
    )
    pace = pace_by(steps, both, 0.9)
    assert pace is not None
    assert pace.end_at == pytest.approx(BEGAN + 30 + 0.1 / 4 * 3600), (
        "four devices use up a tenth of an hour"
    )
    assert pace.next_evaluation_at is None, "the run ends before it"
    endless = pace_by(steps, settings(tmp_path, budget={}), 0.9)
    assert endless is not None
    assert endless.end_at is None


def test_what_was_said_is_read_back_and_what_is_no_line_is_passed_over(tmp_path: Path) -> None:
    assert event_log.read_events(tmp_path) == []
    told = [
        event_log.note(tmp_path, "live page: http://x"),
        event_log.note(tmp_path, "two\nlines", trouble=True),
    ]
    with (tmp_path / EVENTS).open("ab") as log:
        log.write(b'nonsense\n\xff\xfe a b c\n{"at": 1e300, "line": "of no day"}\n')
    *told_again, damaged = event_log.read_events(tmp_path)
    assert told_again == told
    assert damaged.local_time == "?"
    assert [(event.line, event.trouble) for event in told] == [
        ("live page: http://x", False),
        ("two lines", True),
    ]
    for number in range(3000):
        event_log.note(tmp_path, f"{number} {'x' * 100}")
    assert event_log.read_events(tmp_path)[-1].line.startswith("2999 ")
    assert len(event_log.read_events(tmp_path)) < 1000, "only the end is read"
