"""Files that are nearly what they seem: each gets a right curve or one sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.columns.names import find_measure
from rollcast.curves.columns.units import find_unit
from rollcast.curves.curve_source import read_curves
from testkit.formats.history import read_history


def _store(path: Path, *extra: tuple[object, ...]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("CREATE TABLE runs (run_uuid, name)")
        store.execute("CREATE TABLE metrics (run_uuid, key, step, timestamp, value, is_nan)")
        store.execute("INSERT INTO runs VALUES ('a1', 'first')")
        for step in range(10, 60, 10):
            store.execute(
                "INSERT INTO metrics VALUES ('a1', 'eval/accuracy', ?, ?, ?, 0)",
                (step, 10**12 + step, step / 100),
            )
        for row in extra:
            store.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", row)
    return path


@pytest.mark.parametrize("folder", ["plain", "a#b", "a%41", "a?b"])
def test_a_store_is_read_whatever_its_folder_is_called(folder: str, tmp_path: Path) -> None:
    path = _store(tmp_path / folder / "mlflow.db")
    before = sorted(tmp_path.rglob("*"))
    assert len(read_history(str(path), Columns(), None).evaluations) == 5
    assert sorted(tmp_path.rglob("*")) == before, "reading made a file"


def test_values_of_a_store_that_mlflow_never_writes_are_left_out(tmp_path: Path) -> None:
    odd = (
        ("a1", None, 10, 10**12, 0.5),
        ("a1", b"key", 10, 10**12, 0.5),
        ("a1", "k", 10, None, 0.5),
    )
    path = _store(tmp_path / "mlflow.db", *odd, ("a1", "k", "ten", 10**12, 0.5))
    assert len(read_history(str(path), Columns(), None).evaluations) == 5


def test_negative_compute_is_no_reading_of_the_start(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,accuracy\n" + "".join(f"{step},0.5\n" for step in range(-40, 60, 10)))
    with pytest.raises(UserError, match="step is -40 in a row"):
        read_curves(str(path), Columns(), None)


def test_a_column_that_is_mostly_empty_is_not_the_compute(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [
        f"{step},{step / 10 if step % 50 == 0 else ''},0.{step:03}\n" for step in range(10, 210, 10)
    ]
    path.write_text("step,device_hours,accuracy\n" + "".join(rows))
    history = read_history(str(path), Columns(), None)
    assert len(history.evaluations) == 20
    assert history.origin.unit == "steps"


@pytest.mark.parametrize(
    "column", ["elapsed_minutes", "runtime_ms", "time_days", "wall_time_min", "step_time"]
)
def test_other_units_of_time_are_not_called_seconds_or_steps(column: str) -> None:
    assert find_unit(column) == f"units of {column}"


@pytest.mark.parametrize(
    "column",
    ["eval_mean_token_accuracy", "eval/accuracy_gap", "eval_failed_pass", "test_score_diff"],
)
def test_what_is_no_measure_of_success_is_none(column: str) -> None:
    assert find_measure(column) is None


@pytest.mark.parametrize("head", ["\n\n", "sep=;\n"])
def test_what_stands_before_the_header_is_skipped(head: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(head + "step;accuracy\n10;0,25\n20;0,5\n")
    assert [item.pass_rate for item in read_history(str(path), Columns(), None).evaluations] == [
        0.25,
        0.5,
    ]


def test_one_endless_field_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bundle.csv"
    path.write_text("x" * 200_000 + "\n1\n")
    with pytest.raises(UserError, match="is not CSV"):
        read_history(str(path), Columns(), None)
