"""Long files of numbers are read as one table; it holds what their lines tell one by one, whatever is wrong in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.curves.formats import json_rows
from rollcast.curves.formats.number_table import table_of_numbers

PATH = Path("log")
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
NAMES = st.sampled_from(
    ["step", "pass_rate", "val-core/gsm8k/mean@1", 'a "b"', "Schrittzähler", "x, y", "epoch", "loss"]
)


def read(text: str) -> list[object]:
    """Format, columns as numbers and as written, and what is told; or the sentence of the refusal."""
    told: list[str] = []
    try:
        found = json_rows.found(text, PATH, told.append)
    except UserError as error:
        return [str(error)]
    sheet = found.sheet
    numbers = [repr(sheet.numbers(name).values.tolist()) for name in sheet.names]
    return [found.format, sheet.names, numbers, [list(map(str, sheet.cells(name))) for name in sheet.names], told[:1]]


def read_line_by_line(text: str) -> list[object]:
    with mock.patch.object(json_rows, "table_of_numbers", return_value=None):
        return read(text)


def unsigned(found: object) -> str:
    """JSON's -0 is a whole number without a sign, and -0.0 has one: no curve tells them apart."""
    return re.sub(r"-0\.0(?![\d])", "0.0", repr(found))


@given(
    rows=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=2, max_size=8),
    names=st.lists(NAMES, min_size=3, max_size=3, unique=True),
    place=st.integers(0, 2_000),
    change=st.sampled_from(
        ["", "", "0", ".", "-", "+", "e", ",", "\n", "\n\n", '"', "{", "}", " ", "x", "1,", "nan", "  1"]
    ),
    deleted=st.integers(0, 3),
)
def test_a_table_is_read_as_its_lines_are(
    rows: list[list[float]], names: list[str], place: int, change: str, deleted: int
) -> None:
    """Of well-formed files and of such where something was put in or taken out."""
    text = "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    place %= len(text)
    text = text[:place] + change + text[place + deleted :]
    if json_rows.looks_like_json(text):
        assert unsigned(read(text)) == unsigned(read_line_by_line(text))


def test_well_formed_files_are_taken_as_tables() -> None:
    lines = "".join(
        json.dumps({"step": step, "pass_rate": step / 7, "loss": -1e-9 * step}) + "\n" for step in range(1, 50)
    )
    with mock.patch.object(json_rows, "flat", side_effect=AssertionError("line by line")):
        sheet = json_rows.found(lines, PATH, print).sheet
        assert sheet.numbers("pass_rate").values.tolist() == [step / 7 for step in range(1, 50)]
    assert sheet.cells("step")[3] == 4
    log = json_rows.found('{"epoch": 0.1, "step": 1, "loss": 2}\n{"epoch": 0.2, "step": 2, "loss": 1}\n', PATH, print)
    assert log.format == "log history of TRL or transformers"


@pytest.mark.parametrize(
    "text",
    ["1,2\n3\n", "1,2\n3,4,5\n", "1,\n3,4\n", "1,2\n\n3,4\n", "1,2\n3,4", "1;2\n", "1,a\n", "1, 2\n", "1,--2\n",
     "1,2e\n", "1,.5\n", "1,5.\n", "1,07\n", "1,+5\n", "1,-\n", "1,1.2.3\n", "1,nan\n", "1,1_0\n", "1,\u0663\n", "",
     "\n", "."],
)  # fmt: skip
def test_what_is_no_table_of_two_json_numbers_a_line_is_refused(text: str) -> None:
    assert table_of_numbers(text, ",\n") is None


def test_numbers_are_those_of_python() -> None:
    texts = ["0", "-0", "1e400", "-12.5e-3", "4.9406564584124654e-324", "9007199254740993", "0.1", "1E5", "0e0"]
    table = table_of_numbers("".join(f"{text}\n" for text in texts), "\n")
    assert table is not None
    assert np.array_equal(table[:, 0], np.array([float(text) for text in texts]))
