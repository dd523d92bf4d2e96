"""A log of another framework's run that grows, read again whole each time it has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from rollcast.config.curve_sources import CurveFile, FileSource
from rollcast.curves.evaluations import EvaluationLog
from rollcast.curves.run_forecast import RunBudget
from rollcast.curves.sources.file import MAX_BYTES_PER_SECOND, CurveFileReader, CurveFiles
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from rollcast.telemetry.prometheus_reader import SourceAway
from testkit.forecaster.recorded_run import record, run_file
from testkit.forecaster.service_process import running, wait_for
from testkit.forked_programs import ForkedPrograms


def reader(path: Path, **columns: object) -> CurveFileReader:
    return CurveFileReader(CurveFile(run="theirs", path=path, **columns))  # type: ignore[arg-type]


def test_an_appended_row_is_a_new_forecast(tmp_path: Path, services: ForkedPrograms) -> None:
    points, path = record(20), tmp_path / "theirs.csv"
    lines = [
        f"{r.step},{r.compute!r},{r.pass_rate!r},{0.3 if i >= 12 else 0.02}\n"
        for i, r in enumerate(points)
    ]
    curve = {
        "run": "theirs",
        "path": str(path),
        "compute": "hours",
        "pass_rate": "reward",
        "truncation_ratio": "cut",
    }
    source = {"kind": "files", "every_seconds": 0.2, "curves": [curve]}
    with running(run_file(tmp_path, source), tmp_path, services) as service:
        away = wait_for(
            lambda: (s := service.client.get("/api/runs").json()["source"]) and s["message"] and s
        )
        assert "there is no file" in away["message"]
        path.write_text("step,hours,reward,cut\n" + "".join(lines[:12]))
        before = service.wait_points(12, "theirs")
        expected = fit(
            Curve.from_points(
                [r.compute for r in points[:12]], [r.pass_rate for r in points[:12]], name="theirs"
            )
        )
        assert before["asymptote"]["q50"] == pytest.approx(float(expected.asymptote((0.5,))[0]))
        assert before["verdict"] == str(expected.verdict.kind)
        with path.open("a") as file:
            file.write(lines[12])
        after = service.wait_points(13, "theirs")
        assert (after["step"], after["pass_rate"]) == (points[12].step, points[12].pass_rate)
        assert after["asymptote"] != before["asymptote"]
        with path.open("a") as file:
            file.write("".join(lines[13:]))
        broken = service.wait_points(20, "theirs")
        assert (broken["verdict"], "answers are truncated" in str(broken["reason"])) == (
            "regime_change",
            True,
        )
    # What was read once is neither lost nor read twice by a forecaster that starts later.
    with running(run_file(tmp_path, source), tmp_path, services) as service:
        assert wait_for(lambda: service.client.get("/api/runs").json()["source"]["up"])
        assert service.wait_points(20, "theirs")["num_points"] == 20


@pytest.mark.parametrize(
    ("column", "unit"), [("step", "steps"), ("gpu_hours", "GPU-hours"), ("compute", "device-hours")]
)
def test_the_column_of_compute_tells_the_unit(column: str, unit: str, tmp_path: Path) -> None:
    """As the commands have it; device-hours stood beside steps too."""
    path = tmp_path / "theirs.csv"
    rows = "".join(f"{point.step},{point.compute!r},{point.pass_rate!r}\n" for point in record(12))
    path.write_text(
        "step,compute,reward\n" + rows if unit != "GPU-hours" else "step,gpu_hours,reward\n" + rows
    )
    history = History(tmp_path / "history.sqlite")
    board, metrics = Board(), ForecastMetrics("theirs")
    engine = ForecastEngine(board, history, metrics, {"theirs": RunBudget(device_hours=1e3)})
    engine.take(CurveFiles((CurveFile(run="theirs", path=path, compute=column),)).read())
    found = board.get("theirs")
    assert found is not None
    assert (found.unit, found.end) == (unit, None if unit == "steps" else 1e3)
    page = metrics.render().decode()
    assert ("rollcast_advice_device_hours{" in page) is (unit != "steps")
    # A forecaster that starts later knows the readings already, the unit only once the file has
    # told it again.
    later = Board()
    engine = ForecastEngine(later, history, ForecastMetrics("theirs"))
    engine.take(CurveFiles((CurveFile(run="theirs", path=path, compute=column),)).read())
    again = later.get("theirs")
    assert again is not None
    assert again.unit == unit
    history.close()


def test_half_a_row_waits_and_a_file_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    source = reader(path)
    path.write_text("gpu_hours,accuracy\n0,0.2\n1.5,0.3")
    assert [(e.compute, e.pass_rate, e.step) for e in source.read().evaluations] == [(0.0, 0.2, 0)]
    with path.open("a") as file:
        file.write("7\n\n3,0.5\n")
    found = [(e.compute, e.pass_rate, e.step) for e in source.read().evaluations]
    assert found == [(0.0, 0.2, 0), (1.5, 0.37, 2), (3.0, 0.5, 3)]
    assert source.read().evaluations == []
    # Another header, and no line shorter than before: the columns are other ones now.
    path.write_text(
        "epoch,accuracy,gpu_hours,stderr\n" + "1,0.2,0,0.01\n2,0.37,1.5,0.01\n3,0.5,3,0.01\n"
    )
    again = source.read().evaluations
    assert [(e.compute, e.pass_rate, e.standard_error) for e in again] == [
        (0.0, 0.2, 0.01), (1.5, 0.37, 0.01), (3.0, 0.5, 0.01),
    ]  # fmt: skip


def test_rows_of_training_are_passed_over_and_torn_ones_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [
        {"step": 10, "loss": 0.4},
        {"step": 10, "eval_acc": 0.3, "compute": 2.0, "truncated": 0.05},
        {"step": 20, "loss": 0.3, "eval_acc": None},
        {"step": 20, "eval_acc": 0.4, "compute": 4.0},
        {"step": 30, "eval_acc": "x", "compute": 6.0},
        {"step": 40, "eval_acc": 0.4},
    ]
    path.write_bytes(
        "".join(json.dumps(row) + "\n" for row in rows).encode() + b'{"step": \n\xff\xfe\n'
    )
    reading = reader(path, compute="compute").read()
    assert [(e.step, e.pass_rate, e.truncation_ratio) for e in reading.evaluations] == [
        (10, 0.3, 0.05),
        (20, 0.4, None),
    ]
    assert reading.skipped == {"bad_line": 2}


@pytest.mark.parametrize(
    ("text", "columns", "sentence"),
    [
        (
            "gpu_hours,loss\n1,0.3\n",
            {},
            "none of the columns pass_rate, accuracy.* of gpu_hours, loss with pass_rate:",
        ),
        (
            "gpu_hours,acc\n1,0.3\n",
            {"pass_rate": "reward"},
            "no column .reward.; name one of gpu_hours, acc with pass_r",
        ),
        ("a,accuracy\n1,0.3\n", {}, "none of the columns compute_device_hours, compute"),
        (
            "step,a_acc,b_acc\n1,0.3,0.2\n",
            {},
            "a_acc, b_acc could each be the pass rate; choose one with pass_rate:",
        ),
        (
            "compute,accuracy\n1,45\n",
            {},
            r"accuracy holds 45, and .* if it is per cent, add scale: 0\.01",
        ),
        (
            "compute;accuracy\n1,234;0.3\n",
            {},
            (
                "column compute holds '1,234', needs a number, as 0.53: a decimal point, and "
                "nothing between"
            ),
        ),
        (
            "compute,accuracy,accuracy\n1,0.3,0.4\n",
            {},
            "two columns are called 'accuracy'; rename one of them",
        ),
        (
            "compute,accuracy\n1,good\n",
            {"pass_rate": "accuracy"},
            "column accuracy holds 'good', needs a number$",
        ),
        ("", {}, "is empty; give a file with evaluations"),
        ("compute,accuracy", {}, "holds no evaluation yet"),
    ],
)
def test_a_file_without_evaluations_says_what_it_lacks(
    tmp_path: Path, text: str, columns: dict[str, str], sentence: str
) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    source = reader(path, **columns)
    for _ in range(2):
        with pytest.raises(SourceAway, match=sentence):
            source.read()


def test_a_missing_file_is_told_while_the_others_answer(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    (tmp_path / "a.csv").write_text("compute,pass_rate\n1,0.3\n")
    curves = [{"run": name, "path": str(tmp_path / f"{name}.csv")} for name in "abc"]
    with running(
        run_file(tmp_path, {"kind": "files", "every_seconds": 0.2, "curves": curves}),
        tmp_path,
        services,
    ) as service:
        told = wait_for(
            lambda: (s := service.client.get("/api/runs").json()["source"]) and s["up"] and s
        )
        assert (
            told["message"]
            == f"run 'b': there is no file {tmp_path / 'b.csv'} yet (and 1 more like this)"
        )


def test_one_missing_file_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("compute,pass_rate\n1,0.3\n")
    curves = tuple(CurveFile(run=name, path=tmp_path / f"{name}.csv") for name in "ab")
    reading = CurveFiles(curves).read()
    assert [e.run for e in reading.evaluations] == ["a"]
    assert reading.skipped["file_away"] == 1
    assert reading.away == [f"run 'b': there is no file {tmp_path / 'b.csv'} yet"]
    with pytest.raises(ValidationError):
        FileSource(curves=())


def test_a_step_that_goes_back_ends_what_was_evaluated_beyond_it(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    source, log = reader(path), EvaluationLog()
    path.write_text("step,compute,accuracy\n10,1,0.1\n20,2,0.2\n30,3,0.3\n40,4,0.4\n")
    for look in ("", "30,3.2,0.32\n40,4.2,0.42\n"):
        with path.open("a") as file:
            file.write(look)
        for item in source.read().evaluations:
            log.add(item)
    assert [item.compute for item in log.sorted_out().curve_points] == [1.0, 2.0, 3.2, 4.2]


RUNS = "Run,step,compute,accuracy\n" + "".join(
    f"{run},{n},{n}.{run},0.{n}\n" for n in (1, 2, 3) for run in (1, 2)
)
METRICS = "step,compute,metric,score\n" + "".join(
    f"{n},{n},{m},0.{n}\n" for n in (1, 2, 3) for m in ("easy", "hard")
)


@pytest.mark.parametrize(
    ("text", "column", "kinds", "told"),
    [
        (RUNS, "run", ("1", "2"), "holds 2 runs"),
        (METRICS, "metric", ("easy", "hard"), "metric differs between rows of equal compute"),
    ],
)
def test_several_runs_or_measures_of_a_file_are_refused_and_one_can_be_chosen(
    tmp_path: Path, text: str, column: str, kinds: tuple[str, str], told: str
) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    source = reader(path)
    for _ in range(2):
        with pytest.raises(
            SourceAway, match=f"{told}; choose one of {', '.join(kinds)} with where: {column}="
        ):
            source.read()
    chosen = reader(path, where=(f"{column}={kinds[1]}",)).read()
    assert [(int(e.compute), e.pass_rate, e.incarnation) for e in chosen.evaluations] == [
        (1, 0.1, 1),
        (2, 0.2, 1),
        (3, 0.3, 1),
    ]
    with pytest.raises(SourceAway, match="no row is left; check where:"):
        reader(path, where=(f"{column}=other",)).read()
    with pytest.raises(ValidationError):
        reader(path, where=("no condition",))


def test_a_repeated_reading_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("step,compute,accuracy\n1,1,0.1\n2,2,0.2\n2,2,0.25\n3,3,0.3\n")
    reading = reader(path).read()
    assert [e.pass_rate for e in reading.evaluations] == [0.1, 0.2, 0.3]
    assert reading.skipped == {"duplicate": 1}


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1], [3, 1, 5, 2, 4], [2, 7, 1, 8, 3, 6, 4, 5]])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_file_in_no_order_of_steps_is_kept_whole(
    tmp_path: Path, order: list[int], at_once: bool
) -> None:
    path, log = tmp_path / "curve.csv", EvaluationLog()
    lines = ["step,compute,accuracy\n", *(f"{n},{n},0.{n}\n" for n in order)]
    source = CurveFiles((CurveFile(run="theirs", path=path),))
    for look in ["".join(lines)] if at_once else ["".join(lines[:2]), *lines[2:]]:
        with path.open("a") as file:
            file.write(look)
        reading = source.read()
        log.starts.update(reading.starts.get("theirs", {}))
        for item in reading.evaluations:
            log.add(item)
    assert [item.compute for item in log.sorted_out().curve_points] == sorted(order)


def test_a_restart_among_the_first_rows_is_one_once_the_file_is_long_enough_to_tell(
    tmp_path: Path,
) -> None:
    path, log = tmp_path / "curve.csv", EvaluationLog()
    source = CurveFiles((CurveFile(run="theirs", path=path),))
    path.write_text("step,compute,accuracy\n10,1,0.1\n20,2,0.2\n20,2.2,0.22\n")
    for look in ("", "30,3.2,0.3\n40,4.2,0.4\n"):
        with path.open("a") as file:
            file.write(look)
        reading = source.read()
        log.starts.update(reading.starts.get("theirs", {}))
        for item in reading.evaluations:
            log.add(item)
    assert [item.compute for item in log.sorted_out().curve_points] == [1.0, 2.2, 3.2, 4.2]


def test_steps_of_training_tell_the_restart_too(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    made = [(10, 1.0), (20, 2.0), (30, 3.0), (40, 4.2)]
    rows: list[dict[str, object]] = [
        {"step": step, "compute": hours, "accuracy": 0.1} for step, hours in made
    ]
    rows[3:3] = [{"step": step, "loss": 1.0} for step in (31, 32, "nan", 33, 34, 26, 27, 28, 29)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = CurveFiles((CurveFile(run="theirs", path=path),)).read()
    log = EvaluationLog(starts=reading.starts["theirs"])
    for item in reading.evaluations:
        log.add(item)
    assert [item.compute for item in log.sorted_out().curve_points] == [1.0, 2.0, 4.2]
    assert reading.skipped["bad_line"] == 0


def test_delimiter_case_per_cent_and_time_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(
        "GPU_Hours;Reward;StdErr;Clock\n1;30;1;1700000000\n2;40;2;1700003600\n3;45;2;yesterday\n"
    )
    reading = reader(path, scale=0.01, time="clock").read()
    assert [e.compute for e in reading.evaluations] == [1.0, 2.0]
    assert [e.pass_rate for e in reading.evaluations] == pytest.approx([0.3, 0.4])
    assert [e.standard_error for e in reading.evaluations] == pytest.approx([0.01, 0.02])
    assert [e.at for e in reading.evaluations] == [1_700_000_000.0, 1_700_003_600.0]
    assert reading.skipped == {"bad_line": 1}


def test_a_last_line_of_json_is_read_before_it_ends_and_not_twice(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    source = reader(path)
    rows = [json.dumps({"step": n, "compute": n, "accuracy": n / 10}) for n in (1, 2, 3)]
    path.write_text(f"{rows[0]}\n{rows[1]}")
    assert [e.step for e in source.read().evaluations] == [1, 2]
    assert source.read().evaluations == []
    with path.open("a") as file:
        file.write(f"\n{rows[2][:9]}")
    again = source.read()
    assert ([e.step for e in again.evaluations], again.skipped) == ([1, 2], {})
    with path.open("a") as file:
        file.write(f"{rows[2][9:]}\n")
    last = source.read()
    assert ([e.step for e in last.evaluations], last.skipped) == ([1, 2, 3], {})


def test_decimal_commas_are_read_as_in_a_finished_file(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("compute;accuracy\n0,48;0,3\n1,234;0,35\n")
    assert [(e.compute, e.pass_rate) for e in reader(path).read().evaluations] == [
        (0.48, 0.3),
        (1.234, 0.35),
    ]


def test_a_step_that_no_counter_reaches_is_none_and_the_next_one_no_restart(tmp_path: Path) -> None:
    path, log = tmp_path / "curve.csv", EvaluationLog()
    path.write_text("step,compute,accuracy\n10,1,0.1\n20,2,0.2\n1e301,3,0.3\n40,4,0.4\n50,5,0.5\n")
    reading = CurveFiles((CurveFile(run="theirs", path=path),)).read()
    assert reading.starts.get("theirs", {}) == {}
    for item in reading.evaluations:
        log.add(item)
    assert [item.compute for item in log.sorted_out().curve_points] == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_column_that_comes_later_voids_what_was_read_of_another_one(tmp_path: Path) -> None:
    """Before the first evaluation there is only the reward of training; then the held-out measure
    takes its place.
    """
    path = tmp_path / "log.jsonl"
    training = [{"step": step, "reward": 0.9} for step in (1, 2, 3)]
    held_out = [{"step": step, "eval/accuracy": step / 20} for step in (4, 5, 6, 7)]
    history = History(tmp_path / "history.sqlite")
    board = Board()
    engine = ForecastEngine(board, history, ForecastMetrics("theirs"))
    files = CurveFiles((CurveFile(run="theirs", path=path),))
    for rows in (training, training + held_out):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        engine.take(files.read())
    found = board.get("theirs")
    assert found is not None
    assert [item.pass_rate for item in found.evaluations] == [0.2, 0.25, 0.3, 0.35]
    assert found.origin.pass_rate == "eval/accuracy"
    history.close()


def test_a_long_file_that_changes_all_the_time_is_read_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    clock = [100.0]
    monkeypatch.setattr("rollcast.curves.sources.file.time.monotonic", lambda: clock[0])
    training = json.dumps({"note": "x" * 1_000}) + "\n"
    path.write_text(
        '{"compute": 1, "accuracy": 0.3}\n' + training * (MAX_BYTES_PER_SECOND // 1_000)
    )
    source = reader(path)
    assert len(source.read().evaluations) == 1
    with path.open("a") as file:
        file.write('{"compute": 2, "accuracy": 0.4}\n')
    assert source.read().evaluations == []
    clock[0] += 2
    assert len(source.read().evaluations) == 2
