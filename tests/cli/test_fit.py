"""`rollcast fit` on files of other people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollcast.scaling.curve import Curve
from rollcast.scaling.options import FitOptions
from rollcast.scaling.posterior import fit
from testkit.forecaster.recorded_run import record


def rollcast_fit(*arguments: object) -> subprocess.CompletedProcess[str]:
    return rollcast("fit", *arguments)


def rollcast(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )


def write_csv(path: Path) -> None:
    rows = [f"{r.compute},{r.pass_rate},easy\n{r.compute},0.1,hard\n" for r in record()]
    path.write_text("hours,reward,suite\n" + "".join(rows))


def test_a_csv_with_its_own_column_names_gets_the_fit_of_the_library(tmp_path: Path) -> None:
    write_csv(tmp_path / "curve.csv")
    columns = ("--compute", "hours", "--pass-rate", "reward", "--where", "suite=easy")
    picture = tmp_path / "curve.svg"
    result = rollcast_fit(
        tmp_path / "curve.csv", *columns, "--initial", 0.2, "--at", 3, "--target", 0.8, "--json", "--plot", picture
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    points = record()
    expected = fit(
        Curve.from_points([r.compute for r in points], [r.pass_rate for r in points]), FitOptions(initial=0.2)
    )
    assert answer["num_points"] == 29
    assert answer["asymptote"]["q50"] == pytest.approx(float(expected.asymptote((0.5,))[0]))
    assert answer["predictions"][0]["q95"] == pytest.approx(float(expected.predictive([3.0], (0.95,))[0, 0]))
    assert answer["targets"][0]["compute"]["q50"] == pytest.approx(float(expected.compute_to_target(0.8, (0.5,))[0]))
    assert picture.read_text().lstrip().startswith("<?xml")
    shown = rollcast_fit(tmp_path / "curve.csv", *columns)
    assert f"{answer['verdict'].replace('_', ' ')}: " in shown.stdout
    assert "asymptote A" in shown.stdout


def test_a_runs_own_evaluations_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    lines = [
        json.dumps({"step": r.step, "compute_device_hours": r.compute, "pass_rate": r.pass_rate}) for r in record()
    ]
    path.write_text("\n".join(lines))
    result = rollcast_fit(path, "--json")
    assert result.returncode == 0, result.stderr
    assert abs(json.loads(result.stdout)["asymptote"]["q50"] - 0.85) < 0.03


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (None, (), "cannot be read"),
        ("a,b\n1,2\n", (), "none of the columns compute_device_hours"),
        ("compute,pass_rate\n1,x\n", (), "column pass_rate holds 'x', needs a number"),
        ("compute,pass_rate\n1,45\n", (), "divide percentages by 100"),
        ("compute,pass_rate\n1,0.5\n", ("--where", "a"), "--where a: needs COLUMN=VALUE"),
        ("compute,pass_rate\n1,0.5\n", ("--where", "a=b"), "no row is left"),
        ("compute,pass_rate\n1,0.5\n", ("--plot", "x.pdf"), "choose one of these endings"),
        ("compute,pass_rate\n1,0.5\n", ("--at", "-1"), "--at: device-hours must lie"),
        ("compute,pass_rate\n1,0.5\n", ("--plot", "nowhere/x.png"), "there is no folder nowhere; make it or choose"),
        ("compute,pass_rate\n1,0.5\n", ("--initial", "7"), "give a value in [0, 1]"),
        ("compute,pass_rate\n1,0.5\n2,0.6\n", ("--initial", "0.9"), "initial: 0.9 is not below the highest reading"),
        ("compute,pass_rate\n1,0.5\n", ("--standard-error", "error"), "no column 'error'"),
        ("compute,pass_rate\n1,0.5\n", ("--truncation-ratio", "cut"), "no column 'cut'"),
        (
            'compute,pass_rate\n1,"0,53"\n2,"0,6"\n',
            (),
            "column pass_rate holds '0,53', needs a number, as 0.53: a decimal point, and nothing between thousands",
        ),
        (
            "compute;pass_rate\n1,234;53\n2,345;54\n",
            ("--scale", "0.01"),
            "column compute holds '1,234', needs a number",
        ),
        ("compute;pass_rate\n1,500;0.5\n2,500;0.6\n", (), "column compute holds '1,500', needs a number"),
        ("run,compute,pass_rate\na,1,0.5\nb,2,0.6\n", (), "choose one of a, b with --where run=NAME"),
        (
            "compute,suite,pass_rate\n" + "".join(f"{c},{s},0.5\n" for c in (1, 2, 3) for s in ("easy", "hard")),
            (),
            "choose one of easy, hard with --where suite=VALUE",
        ),
        ('{"compute": 1}\nnonsense\n', (), "line 2 is no JSON object"),
        ('[{"compute": 1, "pass_rate": 0.5}]', (), "write one object a line"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, content: str | None, arguments: tuple[str, ...], sentence: str
) -> None:
    path = tmp_path / "curve.csv"
    if content is not None:
        path.write_text(content)
    result = rollcast_fit(path, *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_without_an_end_is_one_sentence() -> None:
    result = rollcast_fit("/dev/zero")
    assert result.returncode == 2
    assert "/dev/zero: larger than 64 MiB" in result.stderr


def test_a_file_of_a_spreadsheet_is_read_like_any_other(tmp_path: Path) -> None:
    """Byte-order mark, spaces around headings, a row that is too long, one that is too short, an empty one."""
    rows = [f"{r.compute}, {r.pass_rate}" for r in record()]
    plain, marked = tmp_path / "plain.csv", tmp_path / "marked.csv"
    plain.write_text("\n".join(["compute,pass_rate", *rows]))
    marked.write_text("\n".join(["\ufeffcompute, pass_rate ", "7", "", f"{rows[0]},seen,twice", *rows[1:]]))
    answers = [json.loads(rollcast_fit(path, "--json").stdout) for path in (plain, marked)]
    assert answers[0].pop("curve") != answers[1].pop("curve")
    assert answers[0] == answers[1]


def test_a_log_in_which_evaluations_are_rare_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [row for r in record() for row in ({"step": r.step}, {"compute": r.compute, "pass_rate": r.pass_rate})]
    path.write_text("\n".join(map(json.dumps, rows)))
    result = rollcast_fit(path, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["num_points"] == len(record()) - 1  # the one at compute 0 is the measured start


@pytest.mark.parametrize("arguments", [(), ("--truncation-ratio", "cut")])
def test_the_verdict_heeds_the_truncation_of_a_file(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    points = record()
    column = "cut" if arguments else "truncation_rate"
    for late, expected in ((0.0, False), (0.4, True)):
        rows = [f"{r.compute},{r.pass_rate},{late if n > len(points) * 0.6 else 0.0}" for n, r in enumerate(points)]
        path = tmp_path / "curve.csv"
        path.write_text("\n".join([f"compute,pass_rate,{column}", *rows]))
        result = rollcast_fit(path, "--json", *arguments)
        assert result.returncode == 0, result.stderr
        answer = json.loads(result.stdout)
        assert (answer["verdict"] == "regime_change" and "truncated" in answer["reason"]) is expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--pass-rate", "reward"), "--compute, --pass-rate: of a Prometheus give both"),
        (("--where", "a=b"), "put matchers into the expressions instead"),
        (("--pass-rate", "a", "--compute", "b", "--run", "a/b"), "--run a/b: is no name for a run"),
    ],
)
def test_what_a_prometheus_cannot_be_asked_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    result = rollcast_fit("http://127.0.0.1:9", *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_a_prometheus_that_is_away_is_one_sentence() -> None:
    result = rollcast_fit("http://127.0.0.1:9")
    assert result.returncode == 2
    assert "give the address of a Prometheus server" in result.stderr
