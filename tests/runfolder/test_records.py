"""What is written down is read back, whole or not at all, whichever release wrote it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.curves.run_folder import RunFolder
from rollcast.local.status import StatusReader
from rollcast.runfolder.folder import prepare
from rollcast.runfolder.format_version import NEWEST, check_format, mark_format
from rollcast.runfolder.records import ComputeRecord, EvaluationRecord, StepRecord, TaskMark, as_json, parse
from rollcast.runfolder.survival import surviving

AMOUNTS = st.floats(0, 1e12, allow_subnormal=True)
EVALUATIONS = st.builds(
    EvaluationRecord,
    incarnation=st.integers(0, 10**12),
    step=st.integers(0, 10**12),
    pass_rate=st.floats(0, 1),
    compute_device_hours=AMOUNTS,
    run=st.text(max_size=20),
    standard_error=st.none() | AMOUNTS,
    start_up_device_hours=st.none() | AMOUNTS,
    devices=st.none() | st.integers(0, 10**6),
    truncation_ratio=st.none() | st.floats(0, 1),
    at=st.none() | st.floats(0, 4e9),
)
STEPS = st.builds(
    StepRecord,
    step=st.integers(0, 10**12),
    loss=st.floats(allow_nan=False),
    grad_norm=st.none() | st.floats(allow_nan=False),
    staleness_tokens=st.dictionaries(st.integers(0, 64), st.integers(0, 10**9), max_size=5),
)


@given(EVALUATIONS | STEPS)
def test_a_record_comes_back_to_the_last_digit(record: EvaluationRecord | StepRecord) -> None:
    assert parse(json.dumps(as_json(record)).encode(), type(record)) == record


def test_marks_and_compute_come_back() -> None:
    for mark in (TaskMark("dispatched", 1.5, [1, 2]), TaskMark("resumed", 2.0, version=None, incarnation=3)):
        assert parse(json.dumps(as_json(mark)).encode(), TaskMark) == mark
    spent = ComputeRecord({"generator": 1.5, "trainer": 0.1}, {"generator": 4, "trainer": 1}, 7.0, stopped=True)
    assert parse(json.dumps(as_json(spent)).encode(), ComputeRecord) == spent


GOOD = {"incarnation": 1, "step": 10, "pass_rate": 0.5, "compute_device_hours": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {"pass_rate": math.nan},
        {"pass_rate": 1.5},
        {"pass_rate": "0.5"},
        {"pass_rate": None},
        {"compute_device_hours": math.inf},
        {"compute_device_hours": -1},
        {"step": 1.5},
        {"step": True},
        {"incarnation": [1]},
        {"at": math.nan},
    ],
)
def test_every_reader_refuses_the_same_lines(change: dict[str, object], tmp_path: Path) -> None:
    """A pass rate that is no number stood on the terminal while the forecaster refused it."""
    (tmp_path / "r").mkdir()
    lines = f"{json.dumps(GOOD)}\n{json.dumps({**GOOD, 'step': 20, **change})}\n"
    (tmp_path / "r" / "evaluations.jsonl").write_text(lines)
    reading = RunFolder(tmp_path / "r", "r").read()
    assert ([item.step for item in reading.evaluations], reading.skipped) == ([10], {"bad_line": 1})
    config = parse_run_config({"run": "r", "folder": str(tmp_path), "model": {"path": "m"}}, source="test")
    status = StatusReader(config)
    assert [item.step for item in status.read().evaluations] == [10]
    assert status.num_skipped == 1


def test_a_line_of_a_newer_release_is_read_as_far_as_it_is_known() -> None:
    assert parse(json.dumps({**GOOD, "temperature": {"of": "tomorrow"}}).encode(), EvaluationRecord).step == 10


def test_all_readers_agree_on_what_a_restart_lost() -> None:
    """Incarnation 2 continued from 25: the 30 of the first one is lost, not the 20."""
    made = [EvaluationRecord(1, step, 0.5, step / 10) for step in (0, 10, 20, 30)]
    assert [(item.incarnation, item.step) for item in surviving(made, {2: 25})] == [(1, 0), (1, 10), (1, 20)]
    made += [EvaluationRecord(2, step, 0.6, step / 10) for step in (30, 40)]
    expected = [(1, 0), (1, 10), (1, 20), (2, 30), (2, 40)]
    for starts in ({2: 25}, {}):
        assert [(item.incarnation, item.step) for item in surviving(made, starts)] == expected


def test_readings_of_one_incarnation_and_step_all_stay() -> None:
    twice = [EvaluationRecord(1, 10, rate, 1.0) for rate in (0.4, 0.6)]
    assert surviving(twice) == twice


def test_a_folder_of_before_formats_is_read_and_marked_when_it_is_continued(tmp_path: Path) -> None:
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(GOOD) + "\n")
    assert check_format(tmp_path) == 0
    prepare(tmp_path, resume=True)
    mark_format(tmp_path)
    assert check_format(tmp_path) == NEWEST
    assert len(RunFolder(tmp_path, "r").read().evaluations) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"format": 2}', "is written in format 2, this Rollcast knows 1 at most; use the release that wrote it"),
        ("{}", "does not say a format"),
        ("[", "does not say a format"),
        ('{"format": "1"}', "does not say a format"),
    ],
)
def test_a_folder_of_a_later_format_is_refused_in_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(content)
    for ask in (check_format, mark_format, lambda folder: prepare(folder, resume=True)):
        with pytest.raises(UserError, match=sentence) as refused:
            ask(tmp_path)
        assert "\n" not in str(refused.value)
