"""`rollcast fit` on small runs whose right answer is known: too few points, no learning, a
collapse, a jump, TRL.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

import rollcast as library
from tests.cli.command import rollcast

DATA = Path(__file__).parent / "data"
Array = NDArray[np.float64]
OF_THE_LAW = ("asymptote", "headroom", "exponent", "midpoint", "initial", "best")


def answer_on(source: Path, *arguments: object) -> dict[str, Any]:
    result = rollcast("fit", source, "--json", *arguments)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def text_on(source: Path, *arguments: object) -> str:
    result = rollcast("fit", source, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def points_of(name: str) -> tuple[Array, Array]:
    step, rate = np.loadtxt(DATA / name, delimiter=",", skiprows=1).T
    return step, rate


def has_no_law(answer: dict[str, Any]) -> bool:
    """No number of a law; gains exist exactly if readings are forecast."""
    has_gain = [answer["advice"][part]["gain"] is not None for part in ("soon", "rest")]
    return (
        all(answer[name] is None for name in OF_THE_LAW)
        and has_gain == [answer["has_forecast"]] * 2
    )


def test_three_of_five_evaluations_get_neither_headline_nor_band_nor_chance() -> None:
    answer = answer_on(DATA / "short.jsonl", "--at", 300)
    advice = answer["advice"]
    assert (answer["verdict"], answer["missing"], answer["has_forecast"]) == ("too_few", 2, False)
    assert (answer["num_points"], answer["num_at_start"]) == (4, 1)
    assert (advice["kind"], advice["headline"], advice["chance"], advice["evaluations"]) == (
        "wait",
        None,
        None,
        2,
    )
    assert has_no_law(answer)
    assert answer["predictions"] == [
        {"compute": 300.0} | dict.fromkeys(("q05", "q25", "q50", "q75", "q95"))
    ]
    text = text_on(DATA / "short.jsonl", "--at", 300)
    assert "short: 4 evaluations (1 at step 0), 0 excluded, newest 0.350 at 150 steps" in text
    assert "too few: 3 of the 5 evaluations that a forecast needs." in text
    assert not re.search(
        r"%|median|asymptote|continue|stop|None|as much again", text, re.IGNORECASE
    )


def test_python_says_of_too_few_evaluations_what_the_command_says() -> None:
    found = library.forecast(DATA / "short.jsonl", budget=1000)
    assert found.to_dict(at=[300.0]) == answer_on(
        DATA / "short.jsonl", "--budget", 1000, "--at", 300
    )
    assert found.at(300.0)["q50"] is None
    assert "None" not in found._repr_html_()
    assert "<td>" not in found._repr_html_()
    assert "4 evaluations (1 at step 0)" in repr(found)


@pytest.mark.parametrize("source", ["dead.csv", "tensorboard_flat"])
def test_a_run_that_learned_nothing_is_stopped_with_the_chance_that_it_takes_off(
    source: str,
) -> None:
    answer = answer_on(DATA / source)
    assert answer["verdict"] == "no_learning"
    assert answer["reason"].startswith("The level has not moved beyond its noise since the start")
    assert (answer["advice"]["kind"], answer["advice"]["headline"]) == ("stop", "Stop")
    assert 0 < answer["advice"]["chance"] < 1
    assert has_no_law(answer)
    text = text_on(DATA / source)
    assert text.startswith("Stop. The run has learned nothing beyond its noise.")
    assert "asymptote A " not in text


def test_the_dead_run_is_flat_by_a_regression_too() -> None:
    _, rate = points_of("dead.csv")
    assert np.ptp(rate) == 0


def test_a_collapse_is_broken_near_its_peak_and_no_end_is_forecast() -> None:
    step, rate = points_of("coll.csv")
    width = 6
    means = np.convolve(rate, np.ones(width) / width, mode="valid")
    peak = float(step[int(np.argmax(means)) + width // 2])
    answer = answer_on(DATA / "coll.csv")
    assert (answer["verdict"], answer["has_forecast"], answer["predictions"]) == (
        "broken",
        False,
        [],
    )
    named = re.search(r"its peak of ([\d.]+) near step (\d+)", answer["reason"])
    assert named is not None, answer["reason"]
    assert float(named[2]) == pytest.approx(peak, abs=50)
    assert float(named[1]) == pytest.approx(float(means.max()), abs=0.01)
    assert "Go back to the last checkpoint before it" in answer["reason"]
    assert (answer["advice"]["kind"], answer["advice"]["chance"]) == ("stop", None)
    assert has_no_law(answer)
    [asked] = answer_on(DATA / "coll.csv", "--at", 2000)["predictions"]
    assert 0 <= asked["q05"] < asked["q50"] < asked["q95"] <= 1
    assert "reading at" not in text_on(DATA / "coll.csv")


def test_after_a_jump_the_forecast_comes_from_the_part_after_it() -> None:
    step, rate = points_of("jump.csv")
    after = rate[step >= 250]
    answer = answer_on(DATA / "jump.csv", "--at", 450)
    assert answer["verdict"] == "regime_change"
    assert "from step 250 on" in answer["reason"]
    assert (
        f"The forecast comes from the {after.size} evaluations of that part alone."
        in answer["reason"]
    )
    assert answer["excluded"] == np.sum(step < 250)
    assert has_no_law(answer)
    [soon] = answer["predictions"]
    assert soon["q05"] <= after[-5:].mean() <= soon["q95"]
    # The whole curve lies within 0.2 and 0.75; the part after the jump scatters by less than 0.01.
    assert soon["q95"] - soon["q05"] < 0.05


def test_right_after_a_jump_it_says_how_many_evaluations_are_missing(tmp_path: Path) -> None:
    rows = (DATA / "jump.csv").read_text().splitlines()
    step, _ = points_of("jump.csv")
    (tmp_path / "jump.csv").write_text("\n".join(rows[: 1 + int(np.sum(step <= 280))]) + "\n")
    answer = answer_on(tmp_path / "jump.csv")
    assert (answer["verdict"], answer["missing"], answer["has_forecast"]) == (
        "regime_change",
        1,
        False,
    )
    assert "That part has 4 of the 5 evaluations that a forecast needs." in answer["reason"]
    assert (answer["predictions"], answer["advice"]["evaluations"]) == ([], 1)


def test_the_end_that_trl_states_is_the_budget_and_one_number_of_evaluations_is_named() -> None:
    result = rollcast("fit", DATA / "trainer_state.json", "--json")
    advice = json.loads(result.stdout)["advice"]
    assert (advice["budget"], advice["is_assumed"], advice["rest"]["until"]) == (
        1000.0,
        False,
        1000.0,
    )
    assert "ends at step 1000 (max_steps)" in result.stderr
    numbers = re.findall(
        r"(\d+) (?:more )?evaluations?",
        " ".join((advice["headline"], advice["reason"], advice["change"])),
    )
    assert len(set(numbers)) <= 1, numbers
    assert answer_on(DATA / "trainer_state.json", "--budget", 700)["advice"]["budget"] == 700
    assert library.forecast(DATA / "trainer_state.json").advice()["budget"] == 1000


def with_last_step(value: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        state = json.loads((DATA / "trainer_state.json").read_text())
        path = folder / "trainer_state.json"
        path.write_text(json.dumps(state | {"max_steps": value}))
        return path

    return write


@pytest.mark.parametrize("value", [600, -1, 0, None, "1000", True])
def test_an_end_that_is_reached_or_is_none_is_no_budget(value: object, tmp_path: Path) -> None:
    advice = answer_on(with_last_step(value)(tmp_path))["advice"]
    assert (advice["budget"], advice["is_assumed"]) == (1200.0, True)


def test_a_flat_event_file_has_no_trend_by_an_ordinary_regression(tmp_path: Path) -> None:
    """What the verdict says of it, by a test that the verdict does not use."""
    shutil.copytree(DATA / "tensorboard_flat", tmp_path / "run")
    points = library.forecast(tmp_path / "run")._run.evaluations
    found = scipy.stats.linregress(
        [point.step for point in points], [point.pass_rate for point in points]
    )
    assert found.pvalue > 0.05
