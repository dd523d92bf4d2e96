"""`rollcast compare`: the library's answers, the log re-plot and the leave-one-out table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.scaling.decisions.compare import compare, with_asymptote
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Curve, SigmoidParameters
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR
from tests.cli.command import rollcast
from tests.cli.refusals import check_refused

RUNS = {"whole": (0.7, 1.7), "low": (0.63, 1.7), "slow": (0.7, 1.1), "twin": (0.7, 1.7)}


def points(name: str) -> tuple[np.ndarray, np.ndarray]:
    """40 evaluations up to 8 C_mid with a noise of 0.004."""
    asymptote, exponent = RUNS[name]
    compute = np.linspace(0.2, 8.0, 40)
    noise = np.random.default_rng(list(RUNS).index(name)).standard_normal(compute.size)
    return compute, SigmoidParameters(0.2, asymptote, exponent, 1.0).pass_rate(
        compute
    ) + 0.004 * noise


def write(folder: Path, name: str, file: str | None = None) -> Path:
    path = folder / (file or f"{name}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{x!r},{y!r}\n" for x, y in zip(*(values.tolist() for values in points(name)), strict=True)
    ]
    path.write_text("compute,pass_rate\n" + "".join(rows))
    return path


def forecast(name: str) -> Forecast:
    return fit(Curve.from_points(*points(name), name=name), FitOptions(prior=LAW_PRIOR))


def quantiles(of: dict[str, float]) -> list[float]:
    return [of["q05"], of["q50"], of["q95"]]


def test_each_run_and_each_pair_get_what_the_library_says(tmp_path: Path) -> None:
    sources = [write(tmp_path, name) for name in ("whole", "low", "slow")]
    compared = rollcast("compare", *sources, "--json")
    assert compared.returncode == 0, compared.stderr
    answer = json.loads(compared.stdout)
    expected = [forecast(name) for name in ("whole", "low", "slow")]
    for run, one in zip(answer["runs"], expected, strict=True):
        assert (run["curve"], run["num_points"]) == (one.curve.name, 40)
        assert run["verdict"] == str(one.verdict.kind)
        assert quantiles(run["asymptote"]) == pytest.approx(one.asymptote().tolist())
        assert quantiles(run["exponent"]) == pytest.approx(one.exponent().tolist())
        assert quantiles(run["midpoint"]) == pytest.approx(one.midpoint().tolist())
    pairs = compare(expected)
    assert [pair["verdict"] for pair in answer["pairs"]] == [pair.verdict for pair in pairs]
    assert answer["pairs"][0]["higher_asymptote"][0] > 0.95
    shown = rollcast("compare", *sources).stdout
    low, middle, high = expected[1].midpoint()
    assert f"{middle:.4g} ({low:.4g}–{high:.4g})" in shown
    assert all(pair.verdict in shown for pair in pairs)


def test_the_log_replot_is_the_papers_function_of_the_fitted_points(tmp_path: Path) -> None:
    """ln F = ln(C_mid^B / ((A - R_0) / (R - R_0) - 1)) by itself; points at or above A have none
    and are counted.
    """
    sources = [write(tmp_path, name) for name in ("whole", "slow")]
    for run in json.loads(rollcast("compare", *sources, "--json").stdout)["runs"]:
        replot = run["log_replot"]
        start, asymptote, exponent, midpoint = (
            replot[name] for name in ("initial", "asymptote", "exponent", "midpoint")
        )
        compute, pass_rate = points(run["curve"])
        compute, pass_rate = compute[run["excluded"] :], pass_rate[run["excluded"] :]
        expected = {
            float(np.log(x)): float(
                np.log(midpoint**exponent / ((asymptote - start) / (y - start) - 1))
            )
            for x, y in zip(compute, pass_rate, strict=True)
            if start < y < asymptote
        }
        assert replot["log_compute"] == pytest.approx(list(expected))
        assert replot["log_factor"] == pytest.approx(list(expected.values()))
        assert replot["left_out"] == compute.size - len(expected)


def test_a_baseline_turns_it_into_the_leave_one_out_table(tmp_path: Path) -> None:
    sources = [write(tmp_path, name) for name in ("low", "slow", "whole", "twin")]
    answered = rollcast("compare", *sources, "--baseline", "whole", "--json")
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    table = answer["leave_one_out"]
    assert "pairs" not in answer
    expected = {name: forecast(name) for name in ("whole", "low", "slow", "twin")}
    medians = [float(np.median(one.draws.asymptote)) for one in expected.values()]
    assert (table["baseline"], table["margin"]) == ("whole", 0.02)
    assert table["common_asymptote"] == pytest.approx(np.mean([medians[0], *medians[2:]]), abs=1e-6)
    assert [row["curve"] for row in table["rows"]] == list(expected)
    assert [run["curve"] for run in answer["runs"]] == list(expected)
    for row in table["rows"]:
        one = expected[row["curve"]]
        held = with_asymptote(one.curve, table["common_asymptote"])
        assert quantiles(row["asymptote"]) == pytest.approx(one.asymptote().tolist())
        assert quantiles(row["exponent"]) == pytest.approx(one.exponent().tolist())
        assert quantiles(row["exponent_at_common"]) == pytest.approx(held.exponent().tolist())
    whole, low, slow, twin = table["rows"]
    assert (whole["kind"], whole["asymptote_loss"], whole["exponent_loss"]) == (None, None, None)
    assert low["asymptote_loss"]["q50"] == pytest.approx(medians[0] - medians[1], abs=0.005)
    assert [row["kind"] for row in (low, slow, twin)] == [
        "ceiling mover",
        "efficiency shaper",
        "cannot tell",
    ]
    shown = rollcast("compare", *sources, "--baseline", "whole").stdout
    for words in (
        "ceiling mover",
        "efficiency shaper",
        "cannot tell",
        f"B at A = {table['common_asymptote']:.3f}",
    ):
        assert words in shown
    assert f"low against whole: A {-low['asymptote_loss']['q50']:+.3f} (" in shown
    far = [
        row["curve"]
        for row in table["rows"]
        if abs(row["asymptote"]["q50"] - table["common_asymptote"]) > 0.02
    ]
    assert table["far_from_common"] == far
    assert "low" in far
    assert f"off that of {', '.join(far)}; B there is bent by it" in shown


@pytest.mark.parametrize("baseline", [(), ("--baseline", "whole")], ids=["pairs", "leave one out"])
def test_the_picture_has_both_panels(tmp_path: Path, baseline: tuple[str, ...]) -> None:
    picture = tmp_path / "compare.svg"
    drawn = rollcast(
        "compare", write(tmp_path, "whole"), write(tmp_path, "slow"), *baseline, "--plot", picture
    )
    assert drawn.returncode == 0, drawn.stderr
    drawing = picture.read_text()
    assert 'id="axes_2"' in drawing
    assert "Progress towards " + ("the common A = " if baseline else "each run's own A") in drawing
    assert "gain made ÷ gain still to make (1 = half-way, at C_mid)" in drawing
    for name in ("whole", "slow"):
        assert re.search(rf"{name}: A = 0\.\d+ \(90 %: 0\.\d+ to 0\.\d+\), B = \d\.\d\d", drawing)


def test_one_file_of_all_runs_gives_the_table_of_one_file_each(tmp_path: Path) -> None:
    names = ("low", "whole", "slow")
    apart = [write(tmp_path, name) for name in names]
    rows = [
        f"{name},{line}\n"
        for name, path in zip(names, apart, strict=True)
        for line in path.read_text().split()[1:]
    ]
    together = tmp_path / "runs.csv"
    together.write_text("run,hours,reward\n" + "".join(rows))
    mapping = ("--compute", "hours", "--pass-rate", "reward")
    compared = rollcast("compare", together, *mapping, "--baseline", "whole", "--json")
    assert compared.returncode == 0, compared.stderr
    one = json.loads(rollcast("compare", *apart, "--baseline", "whole", "--json").stdout)
    assert without_origin(json.loads(compared.stdout)) == without_origin(one)
    assert (one["unit"], json.loads(compared.stdout)["unit"]) == ("device-hours", "hours")


def without_origin(answer: dict[str, Any]) -> dict[str, Any]:
    """What is said of the runs, but not as what they were read."""
    runs = [
        {name: run[name] for name in run if name not in ("unit", "source")}
        for run in answer["runs"]
    ]
    return {
        name: runs if name == "runs" else value for name, value in answer.items() if name != "unit"
    }


def test_files_of_the_same_name_are_named_by_their_folders(tmp_path: Path) -> None:
    one, two = (write(tmp_path, name, f"{name}/curve.csv") for name in ("whole", "low"))
    answer = json.loads(rollcast("compare", one, two, "--baseline", one, "--json").stdout)
    assert [run["curve"] for run in answer["runs"]] == [str(one), str(two)]


@pytest.mark.parametrize(
    ("read", "names", "arguments", "sentence"),
    [
        (True, ("whole",), (), "needs two or more"),
        (True, ("whole",), ("--baseline", "whole"), "at least one run without a part"),
        (
            True,
            ("whole", "low"),
            ("--baseline", "best"),
            "--baseline best: names 0 of the curves; name one of whole, low",
        ),
        (True, ("whole", "whole"), ("--baseline", "{first}"), "is the same run as in"),
        (False, ("whole", "low"), ("--plot", "x.pdf"), "choose one of these endings"),
        (True, ("whole", "low"), ("--initial", 2), "give a value in [0, 1]"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    tmp_path: Path, read: bool, names: tuple[str, ...], arguments: tuple[object, ...], sentence: str
) -> None:
    sources = [write(tmp_path, name) for name in names]
    result = rollcast(
        "compare", *sources, *(str(word).replace("{first}", str(sources[0])) for word in arguments)
    )
    check_refused(result, sentence, sources if read else [])


def test_a_run_whose_verdict_is_not_for_decisions_is_named_in_the_table(tmp_path: Path) -> None:
    early = tmp_path / "early.csv"
    early.write_text("compute,pass_rate\n1,0.2\n2,0.21\n3,0.23\n")
    shown = rollcast("compare", write(tmp_path, "whole"), early, "--baseline", "whole").stdout
    assert "caution: early: verdict too few; do not decide on its row." in shown
    assert "caution: whole" not in shown


def test_a_run_that_broke_is_not_ranked_without_a_caution(tmp_path: Path) -> None:
    early = tmp_path / "early.csv"
    early.write_text("compute,pass_rate\n1,0.2\n2,0.21\n3,0.23\n")
    sources = (write(tmp_path, "whole"), early)
    assert (
        "caution: early: verdict too few; do not decide on its comparisons yet."
        in rollcast("compare", *sources).stdout
    )
    answer = json.loads(rollcast("compare", *sources, "--json").stdout)
    assert answer["cautions"] == ["early: verdict too few; do not decide on its comparisons yet."]
    assert [run["for_decisions"] for run in answer["runs"]] == [True, False]


def test_two_columns_of_one_file_are_two_curves_and_one_twice_is_refused(tmp_path: Path) -> None:
    whole, low = (write(tmp_path, name).read_text().split()[1:] for name in ("whole", "low"))
    both = tmp_path / "both.csv"
    pairs = zip(whole, low, strict=True)
    both.write_text(
        "compute,easy,hard\n" + "".join(f"{one},{two.split(',')[1]}\n" for one, two in pairs)
    )
    measures = ("--pass-rate", "easy", "--pass-rate", "hard")
    answer = json.loads(rollcast("compare", both, both, *measures, "--json").stdout)
    assert [run["curve"] for run in answer["runs"]] == ["both easy", "both hard"]
    alone = json.loads(
        rollcast("compare", tmp_path / "whole.csv", tmp_path / "low.csv", "--json").stdout
    )
    assert [run["asymptote"] for run in answer["runs"]] == [
        run["asymptote"] for run in alone["runs"]
    ]
    refused = rollcast(
        "compare", both, tmp_path / "whole.csv", "--pass-rate", "easy", "--where", "easy=1"
    )
    assert refused.returncode == 2
    copied = tmp_path / "copied.csv"
    copied.write_text(both.read_text())
    refused = rollcast("compare", both, copied, "--pass-rate", "easy")
    assert refused.returncode == 2
    assert f"{copied}: copied is the same run as in {both}; give each run once" in refused.stderr


def test_the_picture_draws_the_b_that_is_printed(tmp_path: Path) -> None:
    answer = json.loads(
        rollcast("compare", write(tmp_path, "whole"), write(tmp_path, "slow"), "--json").stdout
    )
    for run in answer["runs"]:
        assert run["log_replot"]["exponent"] == run["exponent"]["q50"]


def test_a_run_that_is_no_sigmoid_has_no_constants_and_is_not_compared(tmp_path: Path) -> None:
    fallen = tmp_path / "fallen.csv"
    rates = [0.2 + 0.02 * n for n in range(20)] + [0.6 - 0.03 * n for n in range(15)]
    fallen.write_text(
        "compute,pass_rate\n" + "".join(f"{n + 1},{rate}\n" for n, rate in enumerate(rates))
    )
    shown = rollcast("compare", write(tmp_path, "whole"), fallen)
    assert "broken" in shown.stdout
    assert "whole and fallen: not compared: no law describes fallen." in shown.stdout
    answer = json.loads(rollcast("compare", tmp_path / "whole.csv", fallen, "--json").stdout)
    assert [run["asymptote"] is None for run in answer["runs"]] == [False, True]
    one = rollcast("fit", fallen)
    assert "No asymptote, headroom, exponent or midpoint is given" in one.stdout
    assert not {"asymptote A", "exponent B", "midpoint"} & set(
        one.stdout.replace("  ", "\n").split("\n")
    )
    assert json.loads(rollcast("fit", fallen, "--json").stdout)["asymptote"] is None


def test_curves_of_two_units_share_no_axis(tmp_path: Path) -> None:
    hours, steps = write(tmp_path, "whole"), tmp_path / "steps.csv"
    steps.write_text(hours.read_text().replace("compute", "step").replace("hours", "step"))
    refused = rollcast("compare", hours, steps)
    assert refused.returncode == 2
    assert "counts compute in steps" in refused.stderr
