"""`rollcast backtest`: the forecast that was possible at each cut, against what came."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from testkit.forecaster.recorded_run import record
from tests.cli.command import rollcast
from tests.cli.refusals import check_refused


def write(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """40 evaluations of one device-hour, the first at compute 0."""
    rows = [f"{r.compute},{r.pass_rate}\n" for r in record(40)]
    path.write_text("compute,pass_rate\n" + "".join(rows))
    return np.array([r.compute for r in record(40)]), np.array([r.pass_rate for r in record(40)])


def test_every_cut_says_what_a_fit_of_the_points_until_there_says(tmp_path: Path) -> None:
    compute, pass_rate = write(tmp_path / "curve.csv")
    picture = tmp_path / "past.svg"
    answered = rollcast("backtest", tmp_path / "curve.csv", "--json", "--plot", picture)
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    assert answer["outcome"] == pytest.approx(pass_rate[-3:].mean())
    assert [cut["share"] for cut in answer["cuts"]] == pytest.approx(np.arange(1, 10) / 10)
    assert answer["left_out"] == []
    for cut in answer["cuts"]:
        seen = compute <= cut["share"] * (1 + 1e-9)
        assert (cut["num_points"], cut["compute"]) == (seen.sum() - 1, compute[seen][-1])
        forecast = fit(Curve.from_points(compute[seen], pass_rate[seen]))
        error = forecast.reading_error / np.sqrt(3)
        expected = forecast.predictive([compute[-3:].mean()], standard_error=error)[:, 0]
        assert list(cut["forecast"].values()) == pytest.approx(expected.tolist())
        assert cut["covered"] == (expected[0] <= answer["outcome"] <= expected[2])
        assert cut["error"] == pytest.approx(expected[1] - answer["outcome"])
        assert cut["last_value"] == pytest.approx(pass_rate[seen][-1])
        assert cut["verdict"] == str(forecast.verdict.kind)
    assert answer["covered"] == sum(cut["covered"] for cut in answer["cuts"])
    assert f"outcome: {answer['outcome']:.3f}" in picture.read_text()
    shown = rollcast("backtest", tmp_path / "curve.csv").stdout
    assert f"{answer['covered']} of 9 intervals hold it" in shown


def test_cuts_with_too_few_points_are_named(tmp_path: Path) -> None:
    write(tmp_path / "curve.csv")
    shares = ("--share", 0.99, "--share", 0.5, "--share", 0.01)
    answer = json.loads(rollcast("backtest", tmp_path / "curve.csv", *shares, "--json").stdout)
    assert [cut["share"] for cut in answer["cuts"]] == [0.5]
    assert answer["left_out"] == [0.01, 0.99]
    assert "Left out: 1%, 99%" in rollcast("backtest", tmp_path / "curve.csv", *shares).stdout


@pytest.mark.parametrize(
    ("read", "arguments", "sentence"),
    [
        (False, ("--share", 2), "--share: give values between 0 and 1"),
        (True, ("--share", 0.01), "no cut leaves enough evaluations"),
        (False, ("--plot", "past.jpg"), "choose one of these endings"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, read: bool, arguments: tuple[object, ...], sentence: str
) -> None:
    write(tmp_path / "curve.csv")
    check_refused(
        rollcast("backtest", tmp_path / "curve.csv", *arguments),
        sentence,
        [tmp_path / "curve.csv"] if read else [],
    )
