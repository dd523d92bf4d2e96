"""`rollcast plan runs`: its choices against every subset by brute force, and every kind of run in
words.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.cli.plan.runs import join_names
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from tests.cli.command import rollcast
from tests.cli.refusals import check_refused

LAWS = {
    "base": (0.62, 1.7, 400.0, 2000.0),
    "large": (0.70, 1.6, 900.0, 2000.0),
    "small": (0.60, 2.0, 300.0, 1500.0),
    "young": (0.75, 1.5, 800.0, 500.0),
    "twin": (0.75, 1.5, 800.0, 480.0),
}
"""A, B, C_mid and the device-hours so far; R_0 is 0.2."""
CHANGES = {"fell": 0.4, "jumped": 0.8}
"""What the last twelve evaluations of `base` read instead."""


def law(name: str, compute: Any) -> Any:
    asymptote, exponent, midpoint, _ = LAWS[name]
    return 0.2 + (asymptote - 0.2) / (1 + (midpoint / compute) ** exponent)


def points(name: str) -> tuple[np.ndarray, np.ndarray]:
    """30 evaluations with a noise of 0.006."""
    of = "base" if name in CHANGES else name
    compute = np.linspace(1 / 30, 1, 30) * LAWS[of][3]
    readings = law(of, compute)
    if name in CHANGES:
        readings[-12:] = CHANGES[name]
    noise = np.random.default_rng([*LAWS, *CHANGES].index(name)).standard_normal(30)
    return compute, readings + 0.006 * noise


def write(folder: Path, name: str, file: str | None = None, unit: float = 1.0) -> Path:
    """`unit`: device-hours in one unit of the compute that is written."""
    path = folder / (file or f"{name}.csv")
    path.parent.mkdir(exist_ok=True)
    rows = [
        f"{x / unit!r},{y!r}\n"
        for x, y in zip(*(values.tolist() for values in points(name)), strict=True)
    ]
    path.write_text("compute,pass_rate\n" + "".join(rows))
    return path


def answered(*arguments: object) -> dict[str, Any]:
    planned = rollcast("plan", "runs", *arguments, "--json")
    assert planned.returncode == 0, planned.stderr
    answer = json.loads(planned.stdout)
    assert isinstance(answer, dict)
    return answer


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [kept for size in range(len(names) + 1) for kept in combinations(names, size)]


def compute_at_the_end(name: str, kept: tuple[str, ...], budget: float) -> float:
    return LAWS[name][3] + (budget / len(kept) if name in kept else 0.0)


def by_brute_force(names: tuple[str, ...], budget: float) -> dict[tuple[str, ...], float]:
    """Expected pass rate of the best run, by who continues: from each run's own posterior, tails
    included, shuffled.
    """
    draws = {name: fit(Curve.from_points(*points(name))).draws for name in names}
    rng = np.random.default_rng(77)
    order = {name: rng.permutation(draws[name].initial.size) for name in names}

    def end(name: str, compute: float) -> np.ndarray:
        of = draws[name]
        value = of.initial + (of.asymptote - of.initial) / (
            1 + (np.exp(of.log_midpoint) / compute) ** of.exponent
        )
        value = np.clip(value + of.tail * np.log(1 + compute / np.exp(of.log_onset)), 0, 1)
        return value[order[name]]

    return {
        kept: float(
            np.mean(
                np.max(
                    [end(name, compute_at_the_end(name, kept, budget)) for name in names], axis=0
                )
            )
        )
        for kept in subsets(names)
    }


@pytest.mark.parametrize(
    ("names", "budget"),
    [
        (("base", "large", "small"), 3000.0),
        (("base", "large", "small"), 200.0),
        (("base", "small", "young", "twin"), 20_000.0),
    ],
)
def test_the_choices_are_the_best_of_all_subsets(
    tmp_path: Path, names: tuple[str, ...], budget: float
) -> None:
    answer = answered(*(write(tmp_path, name) for name in names), "--budget", budget)
    value = by_brute_force(names, budget)
    most = max(value.values())
    assert [len(choice["continued"]) for choice in answer["choices"]] == list(
        range(len(names), -1, -1)
    )
    for choice in answer["choices"]:
        kept = tuple(choice["continued"])
        assert value[kept] == pytest.approx(
            max(value[one] for one in value if len(one) == len(kept)), abs=0.003
        )
        assert choice["best"]["mean"] == pytest.approx(value[kept], abs=0.003)
        assert choice["expected_loss"] == pytest.approx(most - value[kept], abs=0.004)
        assert set(kept) | set(choice["stopped"]) == set(names)
    assert value[tuple(answer["recommended"]["continued"])] == pytest.approx(most, abs=0.004)
    for run in answer["runs"]:
        name = run["run"]
        assert run["stop_loss"] == pytest.approx(
            most - max(value[kept] for kept in value if name not in kept), abs=0.004
        )
        assert run["alone_loss"] == pytest.approx(most - value[(name,)], abs=0.004)
        assert (run["hours"] > 0) == (name in answer["recommended"]["continued"])
    assert sum(run["hours"] for run in answer["runs"]) == pytest.approx(budget)


@pytest.mark.parametrize("budget", [500.0, 3000.0])
def test_what_is_recommended_is_right_by_the_laws_that_made_the_runs(
    tmp_path: Path, budget: float
) -> None:
    names = ("base", "large", "small")
    answer = answered(*(write(tmp_path, name) for name in names), "--budget", budget)
    truth = {
        kept: max(law(name, compute_at_the_end(name, kept, budget)) for name in names)
        for kept in subsets(names)
    }
    assert (
        answer["recommended"]["continued"]
        == ["large"]
        == list(max(truth.items(), key=lambda item: item[1])[0])
    )
    low, high = answer["recommended"]["best"]["q05"], answer["recommended"]["best"]["q95"]
    assert low < truth[("large",)] < high


def test_the_figures_and_the_recommendation_are_printed(tmp_path: Path) -> None:
    sources = [write(tmp_path, name) for name in ("base", "large", "small")]
    answer = answered(*sources, "--budget", 3000)
    of_runs, of_choices, said = rollcast("plan", "runs", *sources, "--budget", 3000).stdout.split(
        "\n\n"
    )
    best = answer["recommended"]["best"]
    assert answer["recommendation"].startswith(
        "Continue large with all 3000 device-hours, stop base and small: the best run is expected "
        f"to end at {best['mean']:.3f} (90 % {best['q05']:.3f} to {best['q95']:.3f}), "
    )
    assert said == f"{answer['recommendation']}\n"
    for run in answer["runs"]:
        (line,) = (line for line in of_runs.splitlines() if line.startswith(f"{run['run']} "))
        cells = line.split()
        middle, low, high = (run["asymptote"][name] for name in ("q50", "q05", "q95"))
        assert cells[1:4] == [
            f"{run['now']['mean']:.3f}",
            f"{middle:.3f}",
            f"({low:.3f}–{high:.3f})",
        ]
        assert cells[-2:] == [f"{run['stop_loss']:.3f}", f"{run['alone_loss']:.3f}"]
        assert cells[4:-5] == run["verdict"].split("_")
    for choice in answer["choices"]:
        (line,) = (
            line for line in of_choices.splitlines() if line.startswith(f"{choice['name']}  ")
        )
        assert line.split()[-2:] == [
            f"{choice['expected_loss']:.3f}",
            f"{choice['loss_upper']:.3f}",
        ]


def test_runs_that_may_each_turn_out_best_share_the_budget(tmp_path: Path) -> None:
    answer = answered(write(tmp_path, "young"), write(tmp_path, "twin"), "--budget", 20_000)
    assert answer["recommended"]["continued"] == ["young", "twin"]
    assert answer["recommendation"].startswith(
        "Continue young and twin with 10,000 device-hours each: the best run"
    )
    assert answer["recommendation"].count(".000") == 0


def test_runs_that_broke_or_have_too_few_evaluations_are_set_aside_with_their_reason(
    tmp_path: Path,
) -> None:
    early = tmp_path / "early.csv"
    early.write_text("compute,pass_rate\n100,0.2\n200,0.21\n300,0.22\n")
    sources = [write(tmp_path, name) for name in ("large", "fell", "jumped")]
    answer = answered(*sources, early, "--budget", 3000)
    fell, jumped, young = answer["runs"][1:]
    assert [run["verdict"] for run in (fell, jumped, young)] == [
        "broken",
        "regime_change",
        "too_few",
    ]
    assert [run["has_forecast"] for run in answer["runs"]] == [True, False, False, False]
    for run in (fell, jumped):
        assert run["now"]["mean"] == pytest.approx(CHANGES[run["run"]], abs=0.01)
        assert (run["hours"], run["stop_loss"]) == (0, 0)
        (caution,) = (one for one in answer["cautions"] if one.startswith(f"{run['run']}: "))
        assert run["reason"] in caution
        assert "counts with its last readings" in caution
    assert "set fell, jumped and early aside" in answer["recommendation"]
    assert any("3 of the 5 evaluations that a forecast needs." in one for one in answer["cautions"])
    assert any("plan again when it has enough evaluations" in one for one in answer["cautions"])
    assert not any(one.startswith("large: verdict") for one in answer["cautions"])
    shown = rollcast("plan", "runs", *sources, early, "--budget", 3000).stdout
    assert all(f"caution: {caution}" in shown for caution in answer["cautions"])
    alone = answered(sources[1], "--budget", 3000)
    assert (
        alone["recommendation"] == "Spend nothing yet: fell has no law to plan with; see why below."
    )
    assert alone["recommended"]["saved"] == 3000
    early.write_text("compute,pass_rate\n100,0.2\n")
    assert answered(early, "--budget", 3000)["runs"][0]["now"]["mean"] == pytest.approx(
        0.2, abs=0.02
    )


def test_a_budget_that_gains_nothing_is_not_spent(tmp_path: Path) -> None:
    sources = [write(tmp_path, name) for name in ("base", "small")]
    answer = answered(*sources, "--budget", 20)
    assert answer["recommended"]["name"] == "none"
    assert answer["recommendation"].startswith(
        "Stop base and small: with 95 % the 20 device-hours gain at most 0.00"
    )
    assert "less than 0.01; the best run has 0.59" in answer["recommendation"]
    assert all(run["hours"] == 0 for run in answer["runs"])
    asked = answered(*sources, "--budget", 20, "--least-gain", 0)
    assert asked["recommended"]["continued"] == ["base"]


def test_one_run_is_continued_or_stopped(tmp_path: Path) -> None:
    answer = answered(write(tmp_path, "base"), "--budget", 3000)
    assert [choice["name"] for choice in answer["choices"]] == ["base", "none"]
    assert answer["recommendation"].startswith(
        "Continue base with all 3000 device-hours: the best run"
    )
    assert answer["runs"][0]["stop_loss"] == pytest.approx(answer["runs"][0]["gain"]["mean"])
    assert "One run is given" in answer["cautions"][-1]


def test_runs_of_one_name_are_named_by_their_files_and_one_run_counts_once(tmp_path: Path) -> None:
    one, two = (write(tmp_path, name, f"{name}/curve.csv") for name in ("base", "large"))
    answer = answered(one, two, "--budget", 3000)
    assert [run["run"] for run in answer["runs"]] == [str(one), str(two)]
    assert answer["recommended"]["continued"] == [str(two)]
    again = write(tmp_path, "base", "copy.csv")
    refused = rollcast("plan", "runs", one, two, again, "--budget", 3000)
    assert refused.returncode == 2
    assert refused.stderr.endswith(
        f"error: {again}: copy is the same run as in {one}; give each run once\n"
    )


def test_an_older_file_of_a_run_is_no_second_run(tmp_path: Path) -> None:
    whole, older = write(tmp_path, "base"), tmp_path / "older.csv"
    lines = whole.read_text().splitlines(keepends=True)
    older.write_text("".join(lines[:-5]))
    for sources in ((whole, older), (older, whole)):
        refused = rollcast("plan", "runs", *sources, "--budget", 3000)
        assert refused.returncode == 2
        assert refused.stderr.endswith(
            f"error: {older}: older is the beginning of the run in {whole}; give the newer file "
            "only\n"
        )
    compute, pass_rate = lines[-5].strip().split(",")
    older.write_text("".join([*lines[:-5], f"{compute},{float(pass_rate) + 0.001}\n"]))
    assert rollcast("plan", "runs", whole, older, "--budget", 3000).returncode == 0


def test_one_file_of_all_runs_is_planned_like_one_file_each(tmp_path: Path) -> None:
    names = ("base", "large")
    apart = [write(tmp_path, name) for name in names]
    lines = [
        f"{name},{line}\n"
        for name, path in zip(names, apart, strict=True)
        for line in path.read_text().split()[1:]
    ]
    together = tmp_path / "runs.csv"
    together.write_text("run,device_hours,reward\n" + "".join(lines))
    mapping = ("--compute", "device_hours", "--pass-rate", "reward")
    assert answered(together, *mapping, "--budget", 3000) == answered(*apart, "--budget", 3000)


def test_compute_in_another_unit_is_suspected_and_can_be_said(tmp_path: Path) -> None:
    base, seconds = write(tmp_path, "base"), write(tmp_path, "large", unit=1 / 3600)
    suspected = answered(base, seconds, "--budget", 3000)
    assert any(
        "if one counts in another unit, say so with --unit" in one for one in suspected["cautions"]
    )
    told = answered(base, seconds, "--budget", 3000, "--unit", f"large={1 / 3600}")
    right = answered(base, write(tmp_path, "large"), "--budget", 3000)
    assert told["cautions"] == right["cautions"] == []
    assert told["runs"][1]["compute"] == pytest.approx(2000)
    assert told["runs"][1]["gain"]["mean"] == pytest.approx(
        right["runs"][1]["gain"]["mean"], abs=1e-3
    )
    assert told["recommended"]["continued"] == right["recommended"]["continued"]


def test_an_extrapolation_far_out_is_said(tmp_path: Path) -> None:
    answer = answered(write(tmp_path, "base"), write(tmp_path, "large"), "--budget", 18_000)
    assert answer["recommended"]["continued"] == ["large"]
    assert answer["cautions"] == [
        "large: ends at 10 times its compute so far, an extrapolation far out."
    ]


def test_the_picture_has_the_runs_the_losses_and_the_cautions(tmp_path: Path) -> None:
    picture = tmp_path / "runs.svg"
    sources = [write(tmp_path, name) for name in ("base", "large", "fell")]
    drawn = rollcast("plan", "runs", *sources, "--budget", 3000, "--plot", picture)
    assert drawn.returncode == 0, drawn.stderr
    drawing = picture.read_text()
    assert 'id="axes_2"' in drawing
    for text in (
        "Continue large with all 3000 device-hours",
        "base: stopped (forecastable)",
        "large: 3000 device-hours more (forecastable)",
        "fell: set aside (broken)",
        "0.000, recommended",
        "caution: fell: verdict broken",
    ):
        assert f"<!-- {text}" in drawing


def test_of_many_runs_a_sentence_names_the_first() -> None:
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(list("abcdef")) == "a, b, c, d, e and f"
    assert join_names(list("abcdefgh")) == "a, b, c, d, e and 3 others"


@pytest.mark.parametrize(
    ("read", "arguments", "sentence"),
    [
        (False, ("--budget", -5), "--budget -5: compute must be in (0, 1e12]"),
        (False, ("--budget", "nan"), "--budget nan: compute must be in"),
        (False, ("--budget", 10, "--least-gain", 3), "--least-gain 3: is no pass rate"),
        (
            True,
            ("--budget", 10, "--unit", "best=3"),
            "--unit best=3: no run has this name; give one of base, large",
        ),
        (True, ("--budget", 10, "--unit", "large"), "--unit large: no run has this name"),
        (
            True,
            ("--budget", 10, "--unit", "large=0"),
            "--unit large=0: give each run's device-hours",
        ),
        (
            True,
            ("--budget", 10, "--unit", "base=1", "--unit", "base=2"),
            "--unit base=2: give each run's device-hours",
        ),
        (True, ("--budget", 10, "--initial", 2), "give a value in [0, 1]"),
        (False, ("--budget", 10, "--plot", "x.pdf"), "choose one of these endings"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, read: bool, arguments: tuple[object, ...], sentence: str
) -> None:
    sources = [write(tmp_path, name) for name in ("base", "large")]
    check_refused(rollcast("plan", "runs", *sources, *arguments), sentence, sources if read else [])
