"""What is written down is read back, whole or not at all, whichever release wrote it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.curves.evaluations import EvaluationLog
from rollcast.curves.sources.file import CurveFileReader
from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from rollcast.local.frozen_forecast import load_frozen
from rollcast.local.status import StatusReader
from rollcast.runfolder.episode_losses import EpisodeLosses, read_losses, write_losses
from rollcast.runfolder.files import EPISODE_LOSSES, FROZEN_FORECAST
from rollcast.runfolder.folder import check_format, mark_format, prepare
from rollcast.runfolder.outcomes import FrozenForecast, RunRecord, RunResult, SetRecord, State
from rollcast.runfolder.records import (
    MAX_FILE_BYTES,
    ComputeRecord,
    EvaluationRecord,
    IncarnationRecord,
    StepRecord,
    TaskMark,
    as_json,
    parse,
    read_record,
)
from rollcast.runfolder.survival import surviving
from rollcast.runfolder.verifier_failures import (
    VerifierFailure,
    failures_file,
    read_failures,
    write_failures,
)
from rollcast.runfolder.writing import replace_json

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


@settings(max_examples=25)
@given(EVALUATIONS | STEPS)
def test_a_record_comes_back_to_the_last_digit(record: EvaluationRecord | StepRecord) -> None:
    assert parse(json.dumps(as_json(record)).encode(), type(record)) == record


def test_marks_and_compute_come_back() -> None:
    for mark in (
        TaskMark("dispatched", 1.5, [1, 2]),
        TaskMark("resumed", 2.0, version=None, incarnation=3),
    ):
        assert parse(json.dumps(as_json(mark)).encode(), TaskMark) == mark
    spent = ComputeRecord(
        {"generator": 1.5, "trainer": 0.1}, {"generator": 4, "trainer": 1}, 7.0, stopped=True
    )
    assert parse(json.dumps(as_json(spent)).encode(), ComputeRecord) == spent


FROZEN = FrozenForecast(55, 50, 0.5, None, "forecastable", 0.7, 0.8, 0.86, 0.5, 6, 1.5)
OUTCOMES = (
    FROZEN,
    RunResult(0.1, 0.85, FROZEN, -0.05, -0.35, True, 0.53, 12),
    RunResult(0.1, 0.85, None, None, None, None, None, 2),
    SetRecord(
        [
            RunRecord(
                "a-whole", "whole", "the whole recipe", 0, "/runs/a", State.FAILED, "no model", 1.5
            )
        ]
    ),
    SetRecord(
        [],
        [{"curve": "whole"}],
        {"rows": [1, None]},
        ["Raise the ceiling first."],
        [],
        {"dapo": {"k": [1, 2]}},
    ),
)


@pytest.mark.parametrize("record", OUTCOMES, ids=lambda record: type(record).__name__)
def test_the_outcome_of_a_run_and_of_a_set_come_back(
    record: FrozenForecast | RunResult, tmp_path: Path
) -> None:
    replace_json(tmp_path / "outcome.json", as_json(record))
    assert read_record(tmp_path / "outcome.json", type(record)) == record


def test_a_frozen_forecast_that_is_none_is_no_forecast(tmp_path: Path) -> None:
    """Torn, of other types, or longer than any: a run that ends beside it says that no forecast was
    ready.
    """
    good = json.dumps(as_json(FROZEN))
    for content in ("", good[:-2], good.replace("0.86", '"high"'), good.replace("55", "-1"), "[]"):
        (tmp_path / FROZEN_FORECAST).write_text(content)
        assert load_frozen(tmp_path) is None, content
    (tmp_path / FROZEN_FORECAST).write_bytes(good.encode() + b" " * MAX_FILE_BYTES)
    with pytest.raises(ValueError, match="longer than 16 MiB"):
        read_record(tmp_path / FROZEN_FORECAST, FrozenForecast)
    assert load_frozen(tmp_path) is None
    (tmp_path / FROZEN_FORECAST).write_text(good)
    assert load_frozen(tmp_path) == FROZEN


@pytest.mark.parametrize(("num_bytes", "is_read"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_small_files_of_a_run_are_read_up_to_a_mebibyte(
    num_bytes: int, is_read: bool, tmp_path: Path
) -> None:
    """Whoever reads a folder of a stranger has no more of each in memory."""
    losses = [EpisodeLosses("shop", 9, 2, "exit code 3", 3)]
    failures = [VerifierFailure("mine", "a sentence", 4)]
    write_losses(tmp_path, losses)
    write_failures(failures_file(tmp_path, "generator-0"), failures)
    for file in (tmp_path / EPISODE_LOSSES, failures_file(tmp_path, "generator-0")):
        file.write_bytes(file.read_bytes().ljust(num_bytes))
    expected = (losses, failures) if is_read else ([], [])
    assert (read_losses(tmp_path), read_failures(tmp_path)) == expected


def test_a_step_that_told_its_incarnation_is_read() -> None:
    """Releases of before wrote it down; nobody read it."""
    assert parse(b'{"step": 3, "incarnation": 2, "reward_mean": 0.5}', StepRecord) == StepRecord(
        3, reward_mean=0.5
    )


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
    ],
)
def test_every_reader_refuses_the_same_lines(change: dict[str, object], tmp_path: Path) -> None:
    """A pass rate that is no number stood on the terminal while the forecaster refused it."""
    (tmp_path / "r").mkdir()
    lines = f"{json.dumps(GOOD)}\n{json.dumps({**GOOD, 'step': 20, **change})}\n"
    (tmp_path / "r" / "format.json").write_text('{"format": 1}')
    (tmp_path / "r" / "evaluations.jsonl").write_text(lines)
    reading = RunFolder(tmp_path / "r", "r").read()
    assert ([item.step for item in reading.evaluations], reading.skipped) == ([10], {"bad_line": 1})
    config = parse_run_config(
        {"run": "r", "folder": str(tmp_path), "model": {"path": "m"}}, source="test"
    )
    status = StatusReader(config)
    assert [item.step for item in status.read().evaluations] == [10]
    assert status.num_skipped == 1


def test_a_line_of_a_newer_release_is_read_as_far_as_it_is_known() -> None:
    assert (
        parse(
            json.dumps({**GOOD, "temperature": {"of": "tomorrow"}}).encode(), EvaluationRecord
        ).step
        == 10
    )


def test_all_readers_agree_on_what_a_restart_lost() -> None:
    """Incarnation 2 continued from 25: the 30 of the first one is lost, not the 20."""
    made = [EvaluationRecord(1, step, 0.5, step / 10) for step in (0, 10, 20, 30)]
    assert [(item.incarnation, item.step) for item in surviving(made, {2: 25})] == [
        (1, 0),
        (1, 10),
        (1, 20),
    ]
    made += [EvaluationRecord(2, step, 0.6, step / 10) for step in (30, 40)]
    expected = [(1, 0), (1, 10), (1, 20), (2, 30), (2, 40)]
    for starts in ({2: 25}, {}):
        assert [(item.incarnation, item.step) for item in surviving(made, starts)] == expected


def test_of_two_readings_of_one_incarnation_and_step_the_first_stands() -> None:
    twice = [EvaluationRecord(1, 10, rate, 1.0) for rate in (0.4, 0.6)]
    assert surviving(twice) == twice[:1]


def folder_of(
    tmp_path: Path, records: list[EvaluationRecord], began: list[IncarnationRecord]
) -> Path:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "format.json").write_text('{"format": 1}')
    (folder / "evaluations.jsonl").write_text(
        "".join(f"{json.dumps(as_json(one))}\n" for one in records)
    )
    (folder / "incarnations.jsonl").write_text(
        "".join(f"{json.dumps(as_json(one))}\n" for one in began)
    )
    return folder


def seen_by_all(folder: Path) -> list[list[tuple[int, int]]]:
    """What survives, as the terminal and as `rollcast fit` see it."""
    config = parse_run_config(
        {"run": "r", "folder": str(folder.parent), "model": {"path": "m"}}, source="test"
    )
    history, _, _ = history_of_folder(folder, None)
    return [
        [(item.incarnation, item.step) for item in StatusReader(config).read().evaluations],
        [(item.incarnation, item.step) for item in history.evaluations],
    ]


def test_what_a_restart_lost_is_known_before_it_evaluates_anew(tmp_path: Path) -> None:
    """Incarnation 2 continued from 25 and has no evaluation yet; the terminal and `fit` kept the
    lost 30.
    """
    made = [EvaluationRecord(1, step, 0.5, step / 10, run="r") for step in (0, 10, 20, 30)]
    folder = folder_of(tmp_path, made, [IncarnationRecord(1, 0), IncarnationRecord(2, 25)])
    assert seen_by_all(folder) == [[(1, 0), (1, 10), (1, 20)]] * 2


def test_an_evaluation_tells_itself_from_where_its_incarnation_continued(tmp_path: Path) -> None:
    """The one at 30 had no verdict: by the first evaluation alone the lost 30 would stand
    for good.
    """
    made = [
        EvaluationRecord(1, step, 0.5, step / 10, run="r", started_from=0)
        for step in (0, 10, 20, 30)
    ]
    made.append(EvaluationRecord(2, 40, 0.6, 4.0, run="r", started_from=25))
    folder = folder_of(tmp_path, made, [])
    expected = [(1, 0), (1, 10), (1, 20), (2, 40)]
    assert seen_by_all(folder) == [expected] * 2
    log = EvaluationLog()
    reading = CurveFileReader(CurveFile(run="r", path=folder / "evaluations.jsonl")).read()
    log.starts |= reading.starts["r"]
    for item in reading.evaluations:
        log.add(item)
    assert [(item.incarnation, item.step) for item in log.sorted_out().curve_points] == expected


@pytest.mark.parametrize(
    "field",
    [
        "standard_error",
        "trained_tokens",
        "samples",
        "start_up_device_hours",
        "devices",
        "truncation_ratio",
    ],
)
def test_a_value_that_cannot_be_costs_no_more_than_itself(field: str) -> None:
    for value in (math.nan, -1, "much", [0.5]):
        record = parse(json.dumps({**GOOD, field: value}).encode(), EvaluationRecord)
        assert (record.step, getattr(record, field)) == (10, None)


@pytest.mark.parametrize("name", ["evaluations.jsonl", "steps.jsonl"])
def test_records_without_a_format_are_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    check_format(tmp_path)
    (tmp_path / name).write_text("")
    for ask in (
        check_format,
        mark_format,
        lambda folder: prepare(folder, resume=True),
        lambda folder: RunFolder(folder, "r"),
    ):
        with pytest.raises(
            UserError, match=r'format.json: does not say a format; write {"format": 1} into it'
        ) as refused:
            ask(tmp_path)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            '{"format": 2}',
            "is written in format 2, this Rollcast knows 1 at most; use the release that wrote it",
        ),
        ('{"format": 0}', "does not say a format"),
        ("{}", "does not say a format"),
        ("[", "does not say a format"),
        ('{"format": "1"}', "does not say a format"),
    ],
)
def test_a_folder_of_a_later_format_is_refused_in_one_sentence(
    content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "format.json").write_text(content)
    for ask in (check_format, mark_format, lambda folder: prepare(folder, resume=True)):
        with pytest.raises(UserError, match=sentence) as refused:
            ask(tmp_path)
        assert "\n" not in str(refused.value)


def test_a_verdict_is_said_in_words() -> None:
    assert "0.860, too early); now 0.500" in replace(FROZEN, verdict="too_early").sentence()
