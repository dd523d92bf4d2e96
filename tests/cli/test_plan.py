"""`rollcast plan budget` and `rollcast plan sizes`: the library's answers, said with their
intervals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rollcast.cli.plan.sizes import parse_size, size_name
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.law.model_size import fit_model_size
from testkit.forecaster.recorded_run import record
from tests.cli.command import rollcast
from tests.cli.refusals import check_refused

SIZES = {"0.6B": 0.6e9, "1.7B": 1.7e9, "4B": 4e9}


def write_curve(path: Path, compute: list[float], pass_rate: list[float]) -> Path:
    rows = [f"{x},{y}\n" for x, y in zip(compute, pass_rate, strict=True)]
    path.write_text("compute,pass_rate\n" + "".join(rows))
    return path


def recorded_curve(path: Path) -> Path:
    return write_curve(
        path, [point.compute for point in record()], [point.pass_rate for point in record()]
    )


def size_points(size: float) -> tuple[np.ndarray, np.ndarray]:
    compute = np.geomspace(20, 2000, 25)
    noise = np.random.default_rng(int(size / 1e6)).standard_normal(25)
    loss = (
        np.exp(-10.0 + 0.45 * np.log(size))
        * compute ** -(0.35 / (1 + 2e9 / size))
        * np.exp(0.005 * noise)
    )
    return compute, 1 - loss


def write_sizes(folder: Path) -> list[str]:
    return [
        f"{name}={write_curve(folder / f'run-{name}.csv', *map(list, size_points(size)))}"
        for name, size in SIZES.items()
    ]


def test_a_budget_gets_what_the_forecast_says(tmp_path: Path) -> None:
    source = recorded_curve(tmp_path / "curve.csv")
    points = record()
    forecast = fit(Curve.from_points([p.compute for p in points], [p.pass_rate for p in points]))
    now = points[-1].compute
    budget, target = 3 * now, 0.8
    picture = tmp_path / "plan.svg"
    answered = rollcast(
        "plan",
        "budget",
        source,
        "--budget",
        budget,
        "--target",
        target,
        "--json",
        "--plot",
        picture,
    )
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    quantiles = (0.05, 0.5, 0.95)
    spent = answer["budget"]
    assert list(spent["reading"].values()) == pytest.approx(
        forecast.predictive([budget], quantiles)[:, 0].tolist()
    )
    assert list(spent["law"].values()) == pytest.approx(
        forecast.pass_rate([budget], quantiles)[:, 0].tolist()
    )
    assert list(spent["gain"].values()) == pytest.approx(forecast.expected_gain(now, budget))
    wanted = answer["target"]
    cost = forecast.compute_to_target(target, np.linspace(0, 1, forecast.draws.asymptote.size))
    assert list(wanted["compute"].values()) == pytest.approx(
        forecast.compute_to_target(target, quantiles).tolist()
    )
    assert wanted["probability_ever"] == pytest.approx(np.mean(np.isfinite(cost)))
    assert wanted["probability_within_budget"] == pytest.approx(np.mean(cost <= budget), abs=1e-3)
    assert answer["verdict"] == str(forecast.verdict.kind)
    assert picture.read_text().lstrip().startswith("<?xml")
    assert all(
        f"<!-- {line}" in picture.read_text() for line in ("budget, 3 device-hours", "target 0.8")
    )
    shown = rollcast("plan", "budget", source, "--budget", budget, "--target", target).stdout
    assert f"on average (90 % {spent['gain']['q05']:.3f} to {spent['gain']['q95']:.3f})" in shown
    assert "within the budget with" in shown


def test_a_target_above_the_asymptote_is_never_reached_and_too_few_evaluations_give_no_numbers(
    tmp_path: Path,
) -> None:
    source = recorded_curve(tmp_path / "curve.csv")
    answer = json.loads(rollcast("plan", "budget", source, "--target", 0.999, "--json").stdout)
    assert answer["target"]["compute"]["q95"] is None
    assert "never" in rollcast("plan", "budget", source, "--target", 0.999).stdout
    early = write_curve(tmp_path / "early.csv", [1.0, 2.0, 3.0], [0.2, 0.21, 0.22])
    answer = json.loads(rollcast("plan", "budget", early, "--budget", 100, "--json").stdout)
    assert (answer["verdict"], answer["for_decisions"]) == ("too_few", False)
    assert set(answer["budget"]["reading"].values()) == {None}
    shown = rollcast("plan", "budget", early, "--budget", 100).stdout
    assert "3 of the 5 evaluations that a forecast needs." in shown
    assert not [word for word in ("reading at", "never", "None", "do not decide") if word in shown]


def test_sizes_get_what_the_law_says_with_their_own_curves_beside_it(tmp_path: Path) -> None:
    picture = tmp_path / "sizes.svg"
    sources = write_sizes(tmp_path)
    options = ("--budget", 1000, "--candidate", "8B", "--exclude-before", 0)
    answered = rollcast("plan", "sizes", *sources, *options, "--json", "--plot", picture)
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    points = [(size, *size_points(size)) for size in SIZES.values()]
    law = fit_model_size(
        np.concatenate([np.full(compute.size, size) for size, compute, _ in points]),
        np.concatenate([compute for _, compute, _ in points]),
        np.concatenate([rate for _, _, rate in points]),
    )
    candidates = [*SIZES.values(), 8e9]
    for row, size in zip(answer["sizes"], candidates, strict=True):
        expected = law.pass_rate(size, [1000.0])[:, 0]
        assert list(row["pass_rate"].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    best, wins = law.best_size(candidates, 1000.0)
    assert answer["recommended"] == ["600M", "1.7B", "4B", "8B"][best]
    assert answer["probability"] == pytest.approx(wins[best])
    assert [len(row["own_curves"]) for row in answer["sizes"]] == [1, 1, 1, 0]
    assert answer["identified"]
    assert any(
        caveat.startswith("8B: outside of the sizes trained") for caveat in answer["caveats"]
    )
    drawn = " ".join(re.findall(r"<!-- (.*?) -->", picture.read_text(), re.DOTALL))
    assert all(f"caution: {caveat}" in " ".join(drawn.split()) for caveat in answer["caveats"])
    shown = " ".join(rollcast("plan", "sizes", *sources, *options).stdout.split())
    assert f"At 1000 device-hours: {answer['recommended']}" in shown
    assert "instead of" in shown


def test_the_budget_at_which_the_choice_changes_is_that_of_a_dense_search(tmp_path: Path) -> None:
    sources = write_sizes(tmp_path)
    answered = rollcast(
        "plan", "sizes", sources[0], sources[2], "--budget", 100, "--exclude-before", 0, "--json"
    )
    answer = json.loads(answered.stdout)
    grid = np.geomspace(1, 1e5, 20_001)
    small, large = (
        np.exp(-10.0 + 0.45 * np.log(size)) * grid ** -(0.35 / (1 + 2e9 / size))
        for size in (SIZES["0.6B"], SIZES["4B"])
    )
    (change,) = answer["changes"]
    assert (change["from"], change["to"]) == ("600M", "4B")
    assert change["compute"]["q50"] == pytest.approx(grid[np.argmax(large < small)], rel=0.1)
    assert change["compute"]["q05"] < change["compute"]["q50"] < change["compute"]["q95"]
    assert answer["recommended"] == "600M"


def test_two_sizes_do_not_identify_the_law_and_a_collapse_or_a_far_budget_is_named(
    tmp_path: Path,
) -> None:
    sources = write_sizes(tmp_path)
    compute, rate = size_points(SIZES["1.7B"])
    fallen = write_curve(
        tmp_path / "fallen.csv", list(compute), [*rate[:12], *np.linspace(rate[11], 0.1, 13)]
    )
    answered = rollcast("plan", "sizes", sources[0], f"1.7B={fallen}", "--budget", 1e5, "--json")
    answer = json.loads(answered.stdout)
    assert not answer["identified"]
    caveats = " ".join(answer["caveats"])
    for words in (
        "not identified by 2 sizes",
        "fallen (1.7B): verdict",
        "50.0 times the longest curve",
    ):
        assert words in caveats


@pytest.mark.parametrize(
    ("read", "arguments", "sentence"),
    [
        (False, ("budget", "{curve}"), "neither is given"),
        (False, ("budget", "{curve}", "--target", 70), "--target 70: is no pass rate"),
        (True, ("budget", "{curve}", "--budget", 1e-6), "the curve is at"),
        (True, ("budget", "{curve}", "--budget", "nan"), "--budget nan"),
        (False, ("budget", "no.csv", "--budget", 9), "cannot be read"),
        (
            False,
            ("budget", "{curve}", "--budget", 9, "--plot", "x.pdf"),
            "choose one of these endings",
        ),
        (False, ("sizes", "{curve}", "--budget", 9), "needs a model size and its curve"),
        (False, ("sizes", "1B={curve}", "--budget", 9), "give the curves of two sizes"),
        (False, ("sizes", "big={curve}", "1B={curve}", "--budget", 9), "'big' is no model size"),
        (
            False,
            ("sizes", "2B={curve}", "1B={curve}", "--budget", 0),
            "--budget 0: compute must be",
        ),
        (
            False,
            ("sizes", "2B={curve}", "1B={curve}", "--budget", 9, "--candidate", "x"),
            "--candidate x: 'x' is no model size",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, read: bool, arguments: tuple[object, ...], sentence: str
) -> None:
    curve = recorded_curve(tmp_path / "curve.csv")
    result = rollcast(
        "plan", *(str(argument).replace("{curve}", str(curve)) for argument in arguments)
    )
    check_refused(result, sentence, [curve] if read else [])


@pytest.mark.parametrize(
    ("text", "size"), [("1.7B", 1.7e9), ("600m", 6e8), ("8e9", 8e9), ("405 B", 4.05e11), ("70", 70)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: float) -> None:
    assert parse_size(text, "here") == pytest.approx(size)
    assert parse_size(size_name(size), "here") == pytest.approx(size)


def test_no_size_is_recommended_by_a_law_that_the_runs_do_not_follow(tmp_path: Path) -> None:
    climbing, falling = tmp_path / "climbing.csv", tmp_path / "falling.csv"
    up = [0.2 + 0.02 * n for n in range(20)]
    climbing.write_text(
        "compute,pass_rate\n" + "".join(f"{n + 1},{rate}\n" for n, rate in enumerate(up))
    )
    down = [*up, *(0.6 - 0.03 * n for n in range(15))]
    falling.write_text(
        "compute,pass_rate\n" + "".join(f"{n + 1},{rate}\n" for n, rate in enumerate(down))
    )
    sources = (f"1B={climbing}", f"8B={falling}")
    answer = json.loads(rollcast("plan", "sizes", *sources, "--budget", 100, "--json").stdout)
    assert (answer["recommended"], answer["probability"]) == (None, None)
    shown = rollcast("plan", "sizes", *sources, "--budget", 100, "--plot", tmp_path / "sizes.svg")
    assert shown.returncode == 0, shown.stderr
    assert (
        "At 100 device-hours: no size is recommended, since fewer than two sizes have a run "
        "that neither"
    ) in shown.stdout


def test_a_second_target_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("compute,pass_rate\n1,0.2\n2,0.3\n")
    refused = rollcast("plan", "budget", path, "--target", 0.5, "--target", 0.7)
    assert refused.returncode == 2
    assert refused.stderr == "error: --target: is given 2 times; give it once\n"


def test_steps_are_never_called_device_hours(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    rates = [0.2 + 0.5 / (1 + (8 / n) ** 1.5) for n in range(1, 41)]
    path.write_text(
        "step,accuracy\n" + "".join(f"{10 * n},{rate}\n" for n, rate in enumerate(rates, start=1))
    )
    for command in (
        ("fit", path, "--target", 0.6),
        ("plan", "budget", path, "--budget", 900, "--target", 0.6),
        ("plan", "runs", path, "--budget", 900),
        ("backtest", path, "--share", 0.5),
        ("compare", path, "--baseline", "nothing"),
    ):
        said = rollcast(
            *command, *(("--plot", tmp_path / "picture.svg") if command[0] != "compare" else ())
        )
        assert "device-hours" not in said.stdout + said.stderr
        if command[0] != "compare":
            assert said.returncode == 0, said.stderr
            assert "device-hours" not in (tmp_path / "picture.svg").read_text()
            answer = json.loads(rollcast(*command, "--json").stdout)
            assert answer["unit"] == "steps"
    assert json.loads(rollcast("fit", path, "--json").stdout)["fitted_on"] == "steps"
