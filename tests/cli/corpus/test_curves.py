"""The folder of curves: what is read, which windows there are, and how a mistake in a file is
reported.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from rollcast.cli.corpus import curves
from rollcast.cli.corpus.curves import read_corpus
from rollcast.cli.corpus.windows import make_windows, num_readings_seen
from rollcast.config.errors import UserError
from tests.cli.corpus.small_corpus import curve, write_index


def test_a_window_holds_the_first_share_and_its_outcome_is_the_mean_of_the_last_three(
    tmp_path: Path,
) -> None:
    write_index(tmp_path, [("run", "a/b", "train", ""), ("short", "a/b", "train", "yes")])
    rows = "".join(f"{x},{x / 100},{'' if x == 30 else 0.01},{x}\n" for x in range(0, 40, 2))
    (tmp_path / "run.csv").write_text("x,y,se,step\n" + rows)
    (tmp_path / "short.csv").write_text("x,y\n" + "".join(f"{x},0.5\n" for x in range(9)))
    # The last x is 38. A quarter is 9.5: of the readings 0, 2, .., 8 only four are after 0. Half is
    # 19.
    [half] = make_windows(read_corpus(tmp_path))
    assert (half.cell, half.repository, half.num_seen, half.share) == ("train 0.5", "a/b", 10, 0.5)
    assert half.seen_curve.compute.tolist() == [1.0 + x for x in range(0, 20, 2)]
    assert half.seen_curve.pass_rate[-1] == half.last == 0.18
    assert half.seen_curve.standard_error is not None
    assert half.ahead == [35.0, 37.0, 39.0]
    assert half.outcome == pytest.approx((0.34 + 0.36 + 0.38) / 3)


def test_too_few_readings_after_zero_before_or_after_the_cut_make_no_window() -> None:
    assert num_readings_seen(curve("a", "r", [0.5] * 10), 0.5) == 5
    assert num_readings_seen(curve("a", "r", [0.5] * 9), 0.5) is None, "nine readings are no curve"
    assert num_readings_seen(curve("a", "r", [0.5] * 10, first=0.0), 0.5) is None, (
        "the first of five is at 0"
    )
    assert num_readings_seen(curve("a", "r", [0.5] * 11, first=0.0), 0.5) == 6
    assert num_readings_seen(curve("a", "r", [0.5] * 10), 0.8) is None, (
        "two readings after the cut are no outcome"
    )
    assert [window.share for window in make_windows([curve("a", "r", [0.5] * 20)])] == [0.25, 0.5]


def test_readings_from_zero_are_shifted_and_unknown_errors_leave_their_column_out() -> None:
    known = curve(
        "a", "r", [0.1 * n for n in range(10)], first=0.0, standard_error=[0.1] * 9 + [np.nan]
    )
    columns = list(csv.DictReader(io.StringIO(known.beginning_as_csv(3))))
    assert columns == [
        {"step": "1.0", "pass_rate": "0.0", "standard_error": "0.1"},
        {"step": "2.0", "pass_rate": "0.1", "standard_error": "0.1"},
        {"step": "3.0", "pass_rate": "0.2", "standard_error": "0.1"},
    ]
    assert known.beginning_as_csv(10).startswith("step,pass_rate\n")
    assert curve("a", "r", [0.5], first=5.0).compute.tolist() == [5.0]


@pytest.mark.parametrize(
    ("rows", "text", "sentence"),
    [
        (
            [("run", "a/b", "train", "")],
            None,
            "run.csv: cannot be read (No such file or directory)",
        ),
        (
            [("run", "a/b", "train", "")],
            "x,y\n1,0.5\n2,high\n",
            "y of reading 2 is 'high'; give a number from 0 to 1",
        ),
        (
            [("run", "a/b", "train", "")],
            "x,y\n1,0.5\n2,1.5\n",
            "y of reading 2 is '1.5'; give a number from 0 to 1",
        ),
        (
            [("run", "a/b", "train", "")],
            "x,y\n-1,0.5\n",
            "x of reading 1 is '-1'; give a number of 0 or more",
        ),
        ([("run", "a/b", "train", "")], "x,y\n1,nan\n", "y of reading 1 is 'nan'"),
        ([("run", "a/b", "train", "")], "x,y\n1\n", "y of reading 1 is ''"),
        ([("run", "a/b", "train", "")], "x,y\n2,0.5\n2,0.5\n", "x must ascend"),
        ([("run", "a/b", "train", "")], "x,rate\n2,0.5\n", "lacks the column y; add it"),
        ([("run", "a/b", "train", "")], "x,y,se\n1,0.5,wide\n", "se of reading 1 is 'wide'"),
        ([("../run", "a/b", "train", "")], None, "name '../run' is not the name of a file"),
        ([], None, "holds no curves: index.csv has no row"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(
    tmp_path: Path, rows: list[tuple[str, ...]], text: str | None, sentence: str
) -> None:
    write_index(tmp_path, rows)
    if text is not None:
        (tmp_path / "run.csv").write_text(text)
    with pytest.raises(UserError) as refused:
        read_corpus(tmp_path)
    assert sentence in str(refused.value)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(tmp_path, [("run", "a/b", "train", "")])
    (tmp_path / "run.csv").write_text("x,y\n" + "".join(f"{x},0.5\n" for x in range(12)))
    monkeypatch.setattr(curves, "MAX_ROWS", 12)
    assert len(read_corpus(tmp_path)[0]) == 12
    monkeypatch.setattr(curves, "MAX_ROWS", 11)
    with pytest.raises(UserError, match="has more than 11 rows; leave some out"):
        read_corpus(tmp_path)
    monkeypatch.setattr(curves, "MAX_FILE_BYTES", 40)
    with pytest.raises(UserError, match="at most 40 are read"):
        read_corpus(tmp_path)


def test_a_folder_without_an_index_holds_no_curves(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no curves: .*index\.csv: cannot be read"):
        read_corpus(tmp_path)
    write_index(tmp_path, [], header=("name", "metric"))
    with pytest.raises(UserError, match="lacks the column source_repo"):
        read_corpus(tmp_path)
