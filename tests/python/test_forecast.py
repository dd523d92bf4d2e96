"""`rollcast.forecast` says what `rollcast fit` says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollcast
from testkit.forecaster.recorded_run import record
from tests.cli import command

POINTS = [(reading.compute, reading.pass_rate) for reading in record()]


def write(folder: Path) -> Path:
    path = folder / "run.csv"
    path.write_text("compute,pass_rate\n" + "".join(f"{x!r},{y!r}\n" for x, y in POINTS))
    return path


class Frame:
    """What of a DataFrame is used; pandas is no dependency."""

    def __init__(self, columns: dict[str, list[float]]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> list[float]:
        return self._columns[name]

    def to_dict(self) -> dict[str, list[float]]:
        return self._columns


def test_a_path_gets_what_the_command_prints(tmp_path: Path) -> None:
    path = write(tmp_path)
    found = rollcast.forecast(path)
    printed = json.loads(command.rollcast("fit", path, "--at", 3, "--target", 0.8, "--json").stdout)
    assert found.to_dict(at=[3.0], target=[0.8]) == printed
    assert (found.verdict, found.reason, found.unit) == (
        printed["verdict"],
        printed["reason"],
        "device-hours",
    )
    asked = command.rollcast(
        "fit", path, "--budget", 9, "--worth", 0.01, "--price", 2, "--json"
    ).stdout
    assert found.advice(9.0, 0.01, 2.0) == json.loads(asked)["advice"]
    with pytest.raises(rollcast.InputError, match="worth: 3 is no gain"):
        found.advice(worth=3.0)
    assert found.at(3.0) == {
        name: value for name, value in printed["predictions"][0].items() if name != "compute"
    }


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({"compute": [x for x, _ in POINTS], "pass_rate": [y for _, y in POINTS]}, None),
        (Frame({"compute": [x for x, _ in POINTS], "pass_rate": [y for _, y in POINTS]}), None),
        ((np.array([x for x, _ in POINTS]), np.array([y for _, y in POINTS])), "device-hours"),
    ],
    ids=["mapping", "frame", "arrays"],
)
def test_what_is_in_memory_gets_the_same_forecast(
    given: Any, unit: str | None, tmp_path: Path
) -> None:
    found = rollcast.forecast(given, unit=unit)
    assert found.at(3.0) == rollcast.forecast(write(tmp_path)).at(3.0)
    assert found.unit == "device-hours"


def test_arrays_are_counted_in_what_is_told_and_never_by_a_clock(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Tokens from 1e9 to 3e9 look like Unix times; a factor on compute changes no pass rate."""
    x, y = [x for x, _ in POINTS], [y for _, y in POINTS]
    plain = rollcast.forecast((x, y))
    assert (plain.unit, plain.to_dict()["unit"]) == ("units", "units")
    many = [1e9 * (1 + value) for value in x if value > 0]
    rates = [rate for value, rate in POINTS if value > 0]
    assert max(many) < 4.1e9
    shifted = rollcast.forecast(([value / 1e9 for value in many], rates))
    for given, unit in (((many, rates), None), ({"compute": many, "pass_rate": rates}, "tokens")):
        large = rollcast.forecast(given, unit=unit)
        assert large.unit == (unit or "units")
        assert large.to_dict()["asymptote"]["q50"] == pytest.approx(
            shifted.to_dict()["asymptote"]["q50"], abs=1e-3
        )
        assert large.at(5e9)["q50"] == pytest.approx(shifted.at(5.0)["q50"], abs=1e-3)
    assert "Unix" not in capfd.readouterr().err
    clock = rollcast.forecast({"time": many, "pass_rate": rates})
    assert clock.unit == "seconds"


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ("nowhere.csv", {}, "nowhere.csv: cannot be read"),
        (
            {"compute": [1.0, 2.0], "pass_rate": [0.1]},
            {},
            "columns of 1, 2 values; give one length",
        ),
        (
            7,
            {},
            "a int is not a curve; give a path, a DataFrame, a mapping of columns, or two arrays",
        ),
        ({"a": [1.0], "b": [0.5]}, {}, "name one of a, b with --pass-rate"),
        (
            {"step": 3, "accuracy": 4},
            {},
            "column step is a int; give a list of one value for each evaluation",
        ),
        ({"step": "34", "accuracy": [0.4, 0.5]}, {}, "column step is a str"),
        ({"step": np.array(3.0), "accuracy": [0.4]}, {}, "column step is one value"),
        (([1.0, 2.0], [0.1, 0.2]), {"unit": " "}, "give 1 to 40 printable characters"),
        (
            ([1.0, 2.0], [0.1, 0.2]),
            {"unit": "tokens", "seconds": "compute", "devices": 8},
            "make device-hours",
        ),
        (
            {"day": ["2026-01-01", "2026-01-02"], "pass_rate": [0.1, 0.2]},
            {"unit": "days", "compute": "day"},
            "'2026-",
        ),
        ("run.csv", {"unit": "tokens"}, "a file has its own unit"),
        ({"compute": [1.0], "pass_rate": [0.5]}, {"initial": 7.0}, "give a value in [0, 1]"),
        ({"compute": [1.0], "pass_rate": [45.0]}, {}, "if it is per cent, add --scale 0.01"),
        (
            {"compute": [1.0], "pass_rate": [0.5]},
            {"law_alone": True, "prior": "p.json"},
            "give one of the two",
        ),
        (
            {"compute": [1.0], "pass_rate": [0.5]},
            {"prior": "nowhere.json"},
            "nowhere.json: cannot be read",
        ),
        ({"compute": [1.0], "pass_rate": [0.5]}, {"budget": -1.0}, "budget: -1 is no compute"),
    ],
)
def test_a_mistake_is_a_value_error_of_one_sentence(
    given: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        rollcast.forecast(given, **options)
    assert isinstance(refused.value, rollcast.InputError)
    assert sentence in str(refused.value)


def test_two_arrays_are_given_as_two_or_as_one() -> None:
    x = [x for x, _ in POINTS]
    y = [y for _, y in POINTS]
    assert rollcast.forecast(x, y).to_dict() == rollcast.forecast((x, y)).to_dict()
    assert rollcast.forecast(np.array(x), np.array(y), unit="tokens").unit == "tokens"


def test_advice_is_a_field_and_answers_for_other_terms(tmp_path: Path) -> None:
    found = rollcast.forecast(write(tmp_path), budget=9.0)
    assert found.advice["headline"] == found.to_dict()["advice"]["headline"]
    assert found.advice == found.advice() == json.loads(json.dumps(found.advice))
    assert found.advice(budget=20.0)["budget"] == 20.0


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda f: f.at(0), r"compute 0: device-hours must be in \(0, 1e12\]"),
        (lambda f: f.at("100"), "compute '100': give a number"),
        (lambda f: f.at(None), "compute None: give a number"),
        (lambda f: f.at([5]), r"compute \[5\]: give a number"),
        (lambda f: f.at(float("nan")), "compute nan: device-hours must be in"),
        (lambda f: f.to_dict(at=[3, -5]), "at -5: device-hours must be in"),
        (lambda f: f.to_dict(at=["x"]), "at 'x': give a number"),
        (lambda f: f.to_dict(at=5), "at 5: give a list of numbers"),
        (lambda f: f.to_dict(target=["x"]), "target 'x': give a number"),
        (lambda f: f.to_dict(target=[1.5]), "target: 1.5 is no pass rate"),
        (lambda f: f.advice("x"), "budget 'x': give a number"),
        (lambda f: f.advice(price=[1]), r"price \[1\]: give a number"),
        (
            lambda _: rollcast.forecast([1, 2], [0.1, 0.2], budget="x"),  # type: ignore[arg-type]
            "budget 'x': give a number",
        ),
        (
            lambda _: rollcast.forecast("run.csv", [0.1, 0.2]),
            "str, list are not a curve; give a path",
        ),
        (lambda _: rollcast.forecast([1.0, 2.0], 3), "list, int are not a curve"),
    ],
)
def test_a_question_without_an_answer_is_refused_as_by_the_command(
    ask: Callable[[rollcast.CurveForecast], Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(rollcast.InputError, match=sentence):
        ask(rollcast.forecast(write(tmp_path)))


def test_a_notebook_shows_text_and_never_markup_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path).rename(tmp_path / "<b>run.csv")
    shown = rollcast.forecast(path)._repr_html_()
    assert "&lt;b&gt;run" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 5


def test_a_notebook_leads_with_the_advice_where_a_budget_is_known(tmp_path: Path) -> None:
    path = write(tmp_path)
    found = rollcast.forecast(path, budget=9.0, worth=0.01, price=2.0)
    assert found.advice() == rollcast.forecast(path).advice(9.0, 0.01, 2.0)
    assert found.advice(worth=0.2) == rollcast.forecast(path).advice(9.0, 0.2, 2.0)
    shown = found._repr_html_()
    told = found.advice()
    assert shown.startswith(f"<div><p><strong>{told['headline']}.</strong> {told['reason']}</p>")
    assert (
        f"gain of the rest, {9 - POINTS[-1][0]:.4g} device-hours for {2 * (9 - POINTS[-1][0]):.4g}"
        in shown
    )
    assert shown.count("<tr>") == 7
    assert found.plot().axes[0].get_xlim()[1] == 9.0
    assert rollcast.forecast(path).plot().axes[0].get_xlim()[1] == pytest.approx(2 * POINTS[-1][0])


def test_the_law_alone_and_a_prior_of_ones_own_are_those_of_the_command(tmp_path: Path) -> None:
    path, prior = write(tmp_path), tmp_path / "prior.json"
    prior.write_text('{"prior": {"turn_rate": 0.0, "tail_weight": 0.5}}')
    for options, asked in (
        ({"law_alone": True}, ["--law-alone"]),
        ({"prior": prior}, ["--prior", prior]),
    ):
        printed = json.loads(command.rollcast("fit", path, *asked, "--json").stdout)
        assert rollcast.forecast(path, **options).to_dict() == printed
        assert printed["asymptote"] != rollcast.forecast(path).to_dict()["asymptote"]
    arrays = ([x for x, _ in POINTS], [y for _, y in POINTS])
    alone = rollcast.forecast(arrays, law_alone=True).to_dict()
    assert alone["asymptote"] == rollcast.forecast(path, law_alone=True).to_dict()["asymptote"]


def test_a_picture_is_a_figure_and_a_file(tmp_path: Path) -> None:
    found = rollcast.forecast(write(tmp_path))
    figure = found.plot(tmp_path / "fit.svg")
    assert (tmp_path / "fit.svg").read_text().lstrip().startswith("<?xml")
    assert figure.axes[0].get_xlabel() == "compute (device-hours)"
    with pytest.raises(rollcast.InputError, match="choose one of these endings"):
        found.plot(tmp_path / "fit.pdf")


def test_importing_loads_nothing_heavy() -> None:
    program = (
        "import sys, rollcast; print([name for name in ('numpy', 'scipy', 'pydantic') if name in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
