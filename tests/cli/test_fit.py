"""`rollcast fit` on files of other people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollcast.scaling.curve import Curve
from rollcast.scaling.posterior import FitOptions, fit
from tests.forecaster.recorded_run import record


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
        ("compute,pass_rate\n1,0.5\n", ("--initial", "7"), "give a value in [0, 1]"),
        ('{"compute": 1}\nnonsense\n', (), "line 2 is no JSON object"),
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


def test_a_prometheus_that_is_away_is_one_sentence() -> None:
    result = rollcast_fit("http://127.0.0.1:9")
    assert result.returncode == 2
    assert "give the address of a Prometheus server" in result.stderr
