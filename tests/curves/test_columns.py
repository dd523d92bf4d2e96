"""A file that is read by column tells what its rows tell one after another."""

from __future__ import annotations

import csv
import json
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.columns.curve_sheet import CurveSheet, curve_sheet
from rollcast.curves.columns.units import TIME_UNITS
from rollcast.curves.evaluations import CurvePoint, clear_impossible_values
from rollcast.curves.formats import delimited
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.recognise import read_sheet
from rollcast.curves.run_evaluations import make_history, read_run_evaluations
from rollcast.curves.sheet import ROWS_AT_ONCE, Row, Sheet
from rollcast.runfolder.survival import surviving
from rollcast.telemetry.evaluation_metrics import is_own_curve
from testkit.formats.history import read_history
from tests.curves.by_rows import RowEvaluations, Settings, rows_that_go_back

NUMBERS = st.one_of(
    st.integers(0, 6).map(str),
    st.sampled_from(
        [
            "",
            "",
            "0.5",
            "5.0",
            "1e1",
            "nan",
            "inf",
            "30%",
            " 2 ",
            "2.5",
            "1_0",
            "5",
            "-1",
            "x",
            "True",
            "1e301",
        ]
    ),
)
HEADERS = st.lists(
    st.sampled_from(
        ["step", "compute", "Compute", "pass_rate", "stderr", "run", "dataset", "metric",
            "incarnation", "started_from", "devices", "trained_tokens", "truncation_ratio",
            "start_up_device_hours", "note"]),
    min_size=2, max_size=7, unique=True)  # fmt: skip
WORDS = st.sampled_from(["", "a", "b", "math", "code", "2"])
WORDED = {"run", "dataset", "metric", "note"}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    header = draw(
        HEADERS.filter(
            lambda names: "pass_rate" in names and not {"compute", "Compute"} <= {*names}
        )
    )
    clean = draw(st.booleans())
    plain = st.integers(0, 1).map(str) if clean else NUMBERS
    cells = [
        WORDS if name in WORDED else NUMBERS if name == "compute" else plain for name in header
    ]
    return header, draw(st.lists(st.tuples(*cells).map(list), min_size=1, max_size=12))


def by_rows(curve: CurveSheet, rows: list[Row], name: str) -> tuple[CurvePoint, ...]:
    """The history of a table's rows, one row after another."""
    columns = curve.columns
    settings = Settings(
        name,
        columns.compute,
        columns.pass_rate,
        columns.standard_error,
        columns.truncation_ratio,
        columns.step,
        1.0,
    )
    first_pass = RowEvaluations(settings)
    for number, row in enumerate(rows):
        first_pass.take(row, number, ())
    found = RowEvaluations(settings, rows_that_go_back(first_pass.looks))
    taken = [found.take(row, number, ()) for number, row in enumerate(rows)]
    if (mixed := found.mixture.complaint(columns.compute, "--where")) is not None:
        raise UserError(mixed)
    finite = [
        clear_impossible_values(item)
        for item in taken
        if item and math.isfinite(item.compute) and math.isfinite(item.pass_rate)
    ]
    if any(item.compute < 0 for item in taken if item):
        raise UserError("negative")
    if columns.unit not in TIME_UNITS:
        finite = [replace(item, start_up=0.0, devices=None) for item in finite]
    return tuple(
        sorted(surviving(finite, found.starts()), key=lambda item: (item.compute, item.step))
    )


def answer_of(question: Callable[[], tuple[CurvePoint, ...]]) -> tuple[CurvePoint, ...] | None:
    """None: refused, or nothing is left.

    Of several things that are wrong either way may name another one first.
    """
    try:
        return question() or None
    except (UserError, ValueError):
        return None


def assert_alike(sheet: Sheet, rows: list[Row]) -> None:
    told: list[str] = []
    try:
        curve = curve_sheet(sheet, Columns(), None, told.append)
    except UserError:
        return  # what was recognised is another test's matter; nothing is left to compare
    if any("falls back for a moment" in sentence for sentence in told):
        return  # rows that are left out before are the matter of test_places_of_readings
    rows = [row for row in rows if is_own_curve(str(row.get("dataset") or ""))]

    def by_columns() -> tuple[CurvePoint, ...]:
        history = make_history(read_run_evaluations(curve, "r"), "r", curve.origin, lambda _: None)
        return tuple(history.evaluations)

    assert answer_of(by_columns) == answer_of(lambda: by_rows(curve, rows, "r"))


@settings(max_examples=25)
@given(tables())
@example((["step", "pass_rate"], [["5", "0.5"], ["5.0", "0.25"], ["3", "1"]]))
@example(
    (
        ["compute", "pass_rate", "metric"],
        [["1", "0.5", "a"], ["1", "0.5", "b"], ["2", "0", "a"], ["3", "0", "a"]],
    )
)
@example((["step", "pass_rate", "metric", "dataset"], [["0", "0", "a", "b"], ["0", "0", "b", "a"]]))
@example(
    (["step", "pass_rate"], [["1", "0.5"], ["1.0", "0.25"], ["2", "1e-1"], ["3", "0"], ["4", "1"]])
)
@example((["pass_rate", "incarnation", "compute"], [["0", "1", "0"], ["0", "0", "1"]]))
@example(
    (
        ["step", "compute", "pass_rate"],
        [["1", "2", "1"], ["2", "4", ""], ["1", "5", "0"], ["2", "6", "0"]],
    )
)
@example(
    (
        ["step", "compute", "pass_rate"],
        [["1", "1", "0"], ["1e301", "2", "1"], ["4", "3", "0"], ["5", "4", "1"]],
    )
)
def test_columns_of_texts_tell_what_their_rows_do(table: tuple[list[str], list[list[str]]]) -> None:
    header, lines = table
    rows: list[Row] = [dict(zip(header, fields, strict=True)) for fields in lines]
    assert_alike(Sheet.from_rows("CSV", rows), rows)
    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *lines])
    log = LogFile(Path("t"), lambda _: None)
    log.__dict__["text"] = written.getvalue()
    assert_alike(delimited.read(log), rows)


PASS_RATE = {"pass_rate": st.one_of(st.none(), st.floats(0, 1), st.booleans(), st.just("0.5"))}
FIELDS = {
    "step": st.one_of(st.none(), st.integers(0, 5), st.floats(0, 3)),
    "compute": st.one_of(st.none(), st.floats(0, 9), st.integers(0, 9)),
    "metric": st.sampled_from([None, "a", "b", True]),
}


@settings(max_examples=25)
@given(st.lists(st.fixed_dictionaries(PASS_RATE, optional=FIELDS), min_size=1, max_size=12))
@example(
    [
        {"pass_rate": 0.5, "step": 2},
        {"pass_rate": None, "step": 2.5},
        {"pass_rate": 0.0, "step": 0.5},
        {"pass_rate": None, "step": 3},
    ]
)
@example([{"pass_rate": 0.0, "step": None, "metric": kind} for kind in ("a", "b")])
def test_objects_with_fields_that_come_and_go_tell_what_their_rows_do(rows: list[Row]) -> None:
    assert_alike(Sheet.from_rows("JSONL", iter(rows)), rows)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_long_table_is_the_table_that_the_csv_module_reads(
    delimiter: str, tmp_path: Path
) -> None:
    """Longer than what is looked at in one go, with quotes, blank lines, and lines of other
    lengths.
    """
    path = tmp_path / "log.csv"
    rows = [
        [str(step), f"0.{step % 97:02}", f'a "{step}{delimiter}" b']
        for step in range(1, 3 * ROWS_AT_ONCE)
    ]
    rows[ROWS_AT_ONCE] = rows[ROWS_AT_ONCE][:2]
    rows[2 * ROWS_AT_ONCE].append("beyond")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["step", "pass_rate", "note"])
        writer.writerows(rows[:700])
        file.write("\r\n\r\n")
        writer.writerows(rows[700:])
    told: list[str] = []
    sheet = read_sheet(str(path), told.append)
    assert [sentence.partition(": ")[2] for sentence in told] == [
        "1 line with fewer fields than columns, 3; the rest is empty",
        "1 line with more fields than columns, 3; the rest is left out",
    ]
    expected = [[*fields, ""][:3] for fields in rows]
    assert [
        list(fields) for fields in zip(*map(sheet.texts, sheet.columns), strict=True)
    ] == expected
    history = read_history(str(path), Columns(), None)
    assert np.array([item.pass_rate for item in history.evaluations]) == pytest.approx(
        [float(fields[1]) for fields in rows]
    )


def test_a_broken_line_among_many_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [json.dumps({"step": step, "pass_rate": 0.5}) for step in range(1, 2 * ROWS_AT_ONCE)]
    lines[ROWS_AT_ONCE + 5] = '{"step": 7, "pass_rate": '
    lines[ROWS_AT_ONCE + 6] = '{"step": 8}, {"step": 9}'
    path.write_text("\n".join(lines))
    told: list[str] = []
    sheet = read_sheet(str(path), told.append)
    assert sheet.num_rows == len(lines) - 2
    assert told == [
        (
            f"{path}: 2 lines left out, line {ROWS_AT_ONCE + 6} is not a JSON object, nor are the "
            "others"
        )
    ]


def test_many_fields_that_each_row_has_one_of_take_no_more_than_they_hold() -> None:
    """As a table with a place for each field of each row these would take 130 MB."""
    tracemalloc.start()
    sheet = Sheet.from_rows("JSONL", ({"step": place, f"key {place}": 1} for place in range(4_000)))
    kept = sheet.only(np.arange(4_000) % 2 == 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert len(kept.columns) == 2_001
    assert kept.texts("key 4")[:4] == ["", "", "1", ""]
