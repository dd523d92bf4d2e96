"""`rollcast fit --paper`: the paper's own procedure, against SciPy at every node and the laws that
the paper prints.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rollcast.scaling.law.baselines import PAPER_ASYMPTOTES, PAPER_MIDPOINTS, paper_grid
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from tests.cli.command import rollcast

START = 0.40
PRINTED = ((0.645, 1.70), (0.61, 1.92), (0.59, 2.01))
"""A and B of laws that the paper prints, with its R_0; its C_mid of short runs lie on a finer grid
than it states."""
GPU_HOURS = np.linspace(1_600.0, 16_000.0, 24)


def write(path: Path, pass_rate: Array) -> Path:
    rows = [
        f"{compute!r},{rate!r}\n"
        for compute, rate in zip(GPU_HOURS.tolist(), pass_rate.tolist(), strict=True)
    ]
    path.write_text("gpu_hours,pass_rate\n300.0,0.31\n" + "".join(rows))
    return path


@pytest.mark.parametrize(("asymptote", "exponent"), PRINTED)
def test_the_printed_laws_are_found_again_on_the_papers_grid(
    asymptote: float, exponent: float, tmp_path: Path
) -> None:
    midpoint = float(PAPER_MIDPOINTS[7])
    path = write(tmp_path / "run.csv", sigmoid(GPU_HOURS, START, asymptote, exponent, midpoint))
    options = (
        "--initial",
        START,
        "--exclude-before",
        1_500,
        "--at",
        50_000,
        "--target",
        0.55,
        "--json",
    )
    done = rollcast("fit", path, "--paper", *options)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["asymptote"], answer["exponent"], answer["midpoint"]) == pytest.approx(
        (asymptote, exponent, midpoint), rel=1e-4
    )
    assert (answer["excluded"], answer["num_points"], answer["unit"]) == (1, 25, "GPU-hours")
    assert (answer["initial"], answer["on_edge"]) == (START, {})
    at = answer["predictions"][0]
    assert at["pass_rate"] == pytest.approx(
        float(sigmoid(50_000.0, START, asymptote, exponent, midpoint)), abs=1e-4
    )
    reached = answer["targets"][0]["compute"]
    assert float(sigmoid(reached, START, asymptote, exponent, midpoint)) == pytest.approx(
        0.55, abs=1e-4
    )


def test_noisy_readings_get_the_node_of_the_least_squares_and_no_interval(tmp_path: Path) -> None:
    noise = 0.004 * np.random.default_rng(4).standard_normal(GPU_HOURS.size)
    path = write(tmp_path / "run.csv", sigmoid(GPU_HOURS, START, 0.61, 1.9, 2_542.0) + noise)
    curve = Curve.from_points(*np.loadtxt(path, delimiter=",", skiprows=1).T).window(1_500.0)
    law = paper_grid(curve, START)
    options = ("--paper", "--initial", START, "--exclude-before", 1_500)
    answer = json.loads(rollcast("fit", path, *options, "--json").stdout)
    assert {name: answer[name] for name in vars(law)} == vars(law)
    assert law.asymptote in PAPER_ASYMPTOTES
    assert np.sum((curve.pass_rate - law.pass_rate(curve.compute)) ** 2) == pytest.approx(
        24 * answer["residual"] ** 2
    )
    shown = rollcast("fit", path, *options).stdout
    assert "It has no intervals and no verdict" in shown
    assert "95 %" not in shown


def test_what_lies_beyond_the_papers_grid_is_told(tmp_path: Path) -> None:
    """A ceiling above the highest A of the grid, all else on it."""
    path = write(
        tmp_path / "run.csv", sigmoid(GPU_HOURS, START, 0.95, 2.0, float(PAPER_MIDPOINTS[7]))
    )
    shown = rollcast("fit", path, "--paper", "--initial", START, "--exclude-before", 1_500).stdout
    assert "A is at an edge of the paper's grid, 0.45 to 0.8: the best one is beyond it" in shown


def test_targets_below_the_start_just_below_the_ceiling_and_beyond_it(tmp_path: Path) -> None:
    """A run that hardly moves has a tiny B: the compute to a target just below A is more than any
    number holds.
    """
    flat = write(tmp_path / "flat.csv", np.where(np.arange(24) % 2 == 0, 0.62, 0.63))
    options = ("--paper", "--initial", START, "--exclude-before", 1_500, "--json")
    targets = [word for target in (0.3, 0.6249, 0.9) for word in ("--target", target)]
    answer = json.loads(rollcast("fit", flat, *options, *targets).stdout)
    below, just_below, beyond = (each["compute"] for each in answer["targets"])
    assert below == 0.0
    assert beyond is None
    law = sigmoid(
        np.array([just_below or 1e300]),
        START,
        answer["asymptote"],
        answer["exponent"],
        answer["midpoint"],
    )
    assert just_below is None or law[0] == pytest.approx(0.6249, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "has no reading at compute 0; give --initial"),
        (("--initial", 1.0), "--initial: 1 is not a pass rate below 1"),
        (("--initial", 0.4, "--exclude-before", 1e5), "no point between 100000 and inf GPU-hours"),
        (("--initial", 0.4, "--at", -1), "--at: GPU-hours must be in"),
        (("--law-alone",), "--paper, --law-alone: the paper's fit has no such option"),
        (("--budget", 5), "--paper, --budget: "),
        (("--plot", "fit.png"), "--paper, --plot: "),
        (("--standard-error", "error"), "--paper, --standard-error: "),
        (("--initial", 0.4, "--target", 5), "--target: 5 is not a pass rate"),
        (("--initial", 0.4, "--exclude-before", 15_000), "2 evaluations are left; its fit needs 3"),
        (("--initial", 0.7), "--initial: 0.7 is not below the highest reading"),
    ],
)
def test_a_mistake_is_one_sentence(
    options: tuple[object, ...], sentence: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "run.csv", sigmoid(GPU_HOURS, START, 0.61, 1.9, 2_542.0))
    done = rollcast("fit", path, "--paper", *options)
    assert (done.returncode, sentence in done.stderr, "Traceback" in done.stderr) == (
        2,
        True,
        False,
    ), done.stderr
