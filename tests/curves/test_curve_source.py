"""Which rows of a file make which curve: restarts, malformed lines, files of several runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.amounts import natural
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_curve, read_curves
from rollcast.curves.evaluations import EvaluationLog
from rollcast.curves.formats.delimited import has_decimal_commas
from rollcast.curves.sources.run_folder import RunFolder

LOST_AND_REDONE = [(10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0), (30, 3.2), (40, 4.2), (50, 5.2)]
"""Steps and compute of a run that was killed after step 40 and went on from a checkpoint at 25."""


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def test_a_resumed_run_is_its_surviving_history_as_the_forecaster_sees_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {
            "incarnation": 1 + (place > 3),
            "step": step,
            "compute_device_hours": hours,
            "pass_rate": hours / 10,
        }
        for place, (step, hours) in enumerate(LOST_AND_REDONE)
    ]
    (tmp_path / "format.json").write_text('{"format": 1}')
    path = write_lines(tmp_path / "evaluations.jsonl", rows)
    curve = read_curve(str(path), Columns(), None)
    assert curve.compute.tolist() == [1.0, 2.0, 3.2, 4.2, 5.2]
    log = EvaluationLog()
    for item in RunFolder(tmp_path, "run").read().evaluations:
        log.add(item)
    assert curve.compute.tolist() == [item.compute for item in log.sorted_out().curve_points]
    assert (
        "2 evaluations left out, of steps that were made again after a restart"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_step_that_goes_back_tells_a_restart_where_no_column_does(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"log.{ending}"
    if ending == "csv":
        write_lines(
            path,
            ["step,compute,accuracy", *(f"{step},{c},{c / 10}" for step, c in LOST_AND_REDONE)],
        )
    else:
        write_lines(
            path,
            [
                {"global_step": step, "compute": c, "accuracy": c / 10}
                for step, c in LOST_AND_REDONE
            ],
        )
    assert read_curve(str(path), Columns(), None).compute.tolist() == [1.0, 2.0, 3.2, 4.2, 5.2]


def test_steps_of_training_tell_the_restart_of_an_evaluation_that_was_redone(
    tmp_path: Path,
) -> None:
    made = [(10, 1.0), (20, 2.0), (30, 3.0), (30, 3.2), (40, 4.2)]
    rows = [{"step": step, "compute": hours, "accuracy": 0.1} for step, hours in made]
    training = [{"step": step, "loss": 1.0} for step in (31, 32, 33, 34, 26, 27, 28, 29)]
    path = write_lines(tmp_path / "log.jsonl", [*rows[:3], *training, *rows[3:]])
    assert read_curve(str(path), Columns(), None).compute.tolist() == [1.0, 2.0, 3.2, 4.2]
    write_lines(path, rows)
    assert read_curve(str(path), Columns(), None).compute.tolist() == [1.0, 2.0, 3.2, 4.2]


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1], [3, 1, 5, 2, 4]])
def test_a_file_in_another_order_is_kept_whole(tmp_path: Path, order: list[int]) -> None:
    path = write_lines(
        tmp_path / "c.csv", ["step,compute,accuracy", *(f"{n},{n},0.{n}" for n in order)]
    )
    assert read_curve(str(path), Columns(), None).compute.tolist() == sorted(order)


def test_of_two_readings_of_a_step_the_first_stands_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_lines(
        tmp_path / "c.csv", ["step,compute,accuracy", "1,1,0.1", "1,1,0.9", "2,2,0.2", "3,3,0.3"]
    )
    assert read_curve(str(path), Columns(), None).pass_rate.tolist() == [0.1, 0.2, 0.3]
    assert "1 evaluation left out, second readings of a step" in capsys.readouterr().err


def test_several_evaluations_of_an_epoch_are_all_kept(tmp_path: Path) -> None:
    lines = [f"{1 + n // 3},{n},0.{n}" for n in range(1, 10)]
    path = write_lines(tmp_path / "c.csv", ["step,compute,accuracy", *lines])
    assert read_curve(str(path), Columns(), None).compute.tolist() == [
        float(n) for n in range(1, 10)
    ]


def test_a_line_separator_in_a_text_ends_no_line(tmp_path: Path) -> None:
    rows = [{"compute": n, "accuracy": n / 10, "note": "a\u2028b\x85c"} for n in (1, 2, 3)]
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert len(read_curve(str(path), Columns(), None)) == 3


def test_a_folder_takes_no_options_for_files(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    with pytest.raises(UserError, match=r"holds no evaluations\.jsonl; give the folder of one run"):
        read_curve(str(folder), Columns(), None)
    rows = [
        {"run": "r", "incarnation": 1, "step": n, "compute_device_hours": n, "pass_rate": 0.1}
        for n in (1, 2)
    ]
    (folder / "format.json").write_text('{"format": 1}')
    write_lines(folder / "evaluations.jsonl", rows)
    assert (
        read_curve(str(folder), Columns(), None).name
        == read_curve(str(folder), Columns(), "r").name
        == "r"
    )
    for columns in (
        Columns(scale=0.01),
        Columns(where=("dataset=d",)),
        Columns(pass_rate="reward"),
    ):
        with pytest.raises(
            UserError,
            match="is a run's folder, which takes no columns, --where, --scale or --offset",
        ):
            read_curve(str(folder), columns, None)
    with pytest.raises(UserError, match="holds the run 'r', not 'other'"):
        read_curve(str(folder), Columns(), "other")


def test_malformed_lines_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"compute": n, "accuracy": n / 10} for n in (1, 2, 3)]
    path = write_lines(tmp_path / "c.jsonl", [rows[0], '{"compute": 2, "accu', "[]", *rows[1:]])
    assert len(read_curve(str(path), Columns(), None)) == 3
    assert (
        "2 lines left out, line 2 is not a JSON object, nor are the others"
        in capsys.readouterr().err
    )


def test_a_file_of_several_runs_is_one_curve_for_each(tmp_path: Path) -> None:
    lines = [
        f"{run},{n},{n / 20 + place / 10}"
        for n in (1, 2, 3)
        for place, run in enumerate(("whole", "part"))
    ]
    path = str(write_lines(tmp_path / "runs.csv", ["run,hours,reward", *lines]))
    columns = Columns(compute="hours", pass_rate="reward")
    curves = [curve for _, curve in read_curves(path, columns, all_runs=True)]
    for curve in curves:
        alone = read_curve(path, columns, curve.name)
        assert (curve.name, curve.pass_rate.tolist()) == (alone.name, alone.pass_rate.tolist())
    assert [curve.name for curve in curves] == ["whole", "part"]
    with pytest.raises(UserError, match="holds 2 runs; choose one of whole, part"):
        read_curve(path, columns, None)
    [(_, one)] = read_curves(
        path, Columns(compute="hours", pass_rate="reward", where=("run=part",))
    )
    assert one.name == "runs"


def test_names_are_sorted_as_people_count() -> None:
    names = ["run-10", "run-2", "b", "run-1", "10", "2", "run-2a", "run-2-x"]
    assert sorted(names, key=natural) == [
        "2",
        "10",
        "b",
        "run-1",
        "run-2",
        "run-2-x",
        "run-2a",
        "run-10",
    ]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("GPU_Hours;Reward;StdErr\n1;0.3;0.01\n2;0.4;0.02\n", Columns()),
        ("gpu_hours\tmean_reward\tstderr\n1\t0.3\t0.01\n2\t0.4\t0.02\n", Columns()),
        ("GPU_HOURS,percent,StdErr\n1,30,1\n2,40,2\n", Columns(pass_rate="Percent", scale=0.01)),
    ],
)
def test_delimiter_case_and_per_cent_of_a_file_are_no_obstacle(
    tmp_path: Path, text: str, columns: Columns
) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    curve = read_curve(str(path), columns, None)
    assert curve.compute.tolist() == [1.0, 2.0]
    assert curve.pass_rate.tolist() == pytest.approx([0.3, 0.4])
    assert curve.standard_error is not None
    assert curve.standard_error.tolist() == pytest.approx([0.01, 0.02])


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_of_a_spreadsheet_are_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delimiter: str
) -> None:
    """As spreadsheets write where the comma is the decimal sign: '1,250' is no thousand there."""
    points = [(0.5, 0.12, "2026-01-02"), (1.25, 0.253, "2026-01-03"), (1234.5, 0.4, "2026-01-04")]
    lines = [f"{hours:.3f};{rate};{day}; {1e-05} ".replace(".", ",") for hours, rate, day in points]
    path = write_lines(
        tmp_path / "c.csv",
        [row.replace(";", delimiter) for row in ("hours;reward;day;stderr", *lines)],
    )
    curve = read_curve(str(path), Columns(compute="hours", pass_rate="reward"), None)
    assert list(zip(curve.compute, curve.pass_rate, strict=True)) == [
        (hours, rate) for hours, rate, _ in points
    ]
    assert curve.standard_error is not None
    assert curve.standard_error.tolist() == pytest.approx([1e-5] * 3)
    assert f"{path}: decimal commas in hours, reward, read as points\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("numbers", "decimal"),
    [
        (("0,53", "1"), True),
        ((",5", "12"), True),
        (("1,234", "53,1"), True),
        (("1234,567", "0"), True),
        (("-1,5e-3",), True),
        (("1,234", "2,345"), False),
        (("1,234", "0.53"), False),
        (("1,5", ".5"), False),
        (("12", "0"), False),
        (("0,5", "", " ", "NaN", "2e3"), True),
        (("0,5", "1,2,3"), False),
        (("0,5", "easy"), False),
        (("", ""), False),
    ],
)
def test_a_comma_is_decimal_only_where_it_can_be_nothing_else(
    numbers: tuple[str, ...], decimal: bool
) -> None:
    assert has_decimal_commas(numbers) is decimal


def test_decimal_commas_are_told_by_their_own_column_alone(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "c.csv", ["compute;pass_rate;lr", "100,5;0,45;2.5", "101;0,5;2.5"]
    )
    curve = read_curve(str(path), Columns(), None)
    assert (curve.compute.tolist(), curve.pass_rate.tolist()) == ([100.5, 101.0], [0.45, 0.5])
    path = write_lines(tmp_path / "d.csv", ["compute;pass_rate;tags", "1,000;1;1,2", "2,000;1;1,2"])
    with pytest.raises(
        UserError, match=r"column compute holds '1,000', needs a number, as 0\.53: a decimal point"
    ):
        read_curve(str(path), Columns(), None)


def test_fields_beyond_the_last_column_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As decimal commas make of two numbers between commas."""
    path = write_lines(tmp_path / "c.csv", ["compute,accuracy", "1,0,53", "2,0,6", "3,0.7,,"])
    assert read_curve(str(path), Columns(), None).pass_rate.tolist() == [0.0, 0.0, 0.7]
    assert (
        "2 lines with more fields than columns, 2; the rest is left out" in capsys.readouterr().err
    )
