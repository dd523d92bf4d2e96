"""`python -m benchmarks.world_prior` on small curves: what it writes can be read; who is judged has
no vote.
"""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy

from rollcast.scaling.law.curve import Array
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR
from rollcast.scaling.posterior.prior_file import read_prior
from rollcast.scaling.posterior.stack import Stack, learned_stack
from testkit.forecast.stack_examples import Examples
from testkit.forecast.stack_learning import learn, votes

REPOSITORIES = ("one/climbs", "two/climbs", "three/stays")


def write_curves(folder: Path, changed: str | None = None) -> None:
    """Two groups whose runs climb and one whose runs stay; the runs of `changed` fall and are noisy
    instead.
    """
    folder.mkdir()
    rows = [("name", "source_repo", "metric")]
    for place, repository in enumerate(REPOSITORIES):
        rng = random.Random(place)
        gain = 0.0 if repository.endswith("stays") else 0.4
        noise = 0.01
        if repository == changed:
            gain = -0.15
            noise = 0.05
        readings = [
            (x, 0.3 + gain * math.log(x) / math.log(14) + rng.gauss(0, noise)) for x in range(1, 15)
        ]
        lines = "".join(f"{x},{min(max(y, 0.0), 1.0):.6f}\n" for x, y in readings)
        (folder / f"curve-{place}.csv").write_text("x,y\n" + lines)
        rows.append((f"curve-{place}", repository, "heldout"))
    with (folder / "index.csv").open("w") as index:
        csv.writer(index).writerows(rows)


def learned_from(curves: Path, out: Path) -> dict[str, str]:
    """Each file that is written: its text."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.world_prior",
        "--curves",
        str(curves),
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_text() for path in out.iterdir()}


def test_a_repository_has_no_part_in_the_file_by_which_it_is_judged(tmp_path: Path) -> None:
    write_curves(tmp_path / "curves")
    write_curves(tmp_path / "others", changed="one/climbs")
    files = learned_from(tmp_path / "curves", tmp_path / "out")
    again = learned_from(tmp_path / "others", tmp_path / "again")
    assert sorted(files) == [
        "learned.json",
        "one__climbs.json",
        "three__stays.json",
        "two__climbs.json",
    ]
    for name, text in files.items():
        origin = json.loads(text)
        assert origin["left_out"] == (
            None if name == "learned.json" else name[: -len(".json")].replace("__", "/")
        )
        assert origin["repositories"] == (3 if name == "learned.json" else 2)
        prior = read_prior(tmp_path / "out" / name)
        assert prior.stack is not None
        assert prior == replace(DEFAULT_PRIOR, stack=prior.stack), "the prior of the law stays"
        assert (again[name] == text) is (name == "one__climbs.json")


def test_no_curves_and_one_repository_are_refused_in_one_sentence(tmp_path: Path) -> None:
    write_curves(tmp_path / "curves")
    index = tmp_path / "curves" / "index.csv"
    index.write_text("\n".join(index.read_text().splitlines()[:2]))
    for curves, sentence in (
        ("curves", "examples of 1 repositories; two are needed"),
        ("none", "holds no curves"),
    ):
        words = ["--curves", tmp_path / curves, "--out", tmp_path / "out"]
        command = [sys.executable, "-m", "benchmarks.world_prior", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert sentence in done.stderr
    assert not (tmp_path / "out").exists()


def examples(*, num_cuts: int = 120, seed: int = 0) -> Examples:
    """Of three repositories, two of them with few cuts.

    The second method is right, up to a noise that is s = W.
    """
    rng = np.random.default_rng(seed)
    cut = np.repeat(np.arange(num_cuts, dtype=float), 3)
    count = cut.size
    repository = np.where(cut < num_cuts - 20, "many", np.where(cut < num_cuts - 10, "few", "also"))
    forecasts = rng.uniform(0.2, 0.8, (count, 7))
    width = rng.uniform(0.02, 0.2, count)
    ahead = np.tile([0.25, 0.5, 1.0], num_cuts)
    score = rng.standard_normal(num_cuts)
    outcome = forecasts[:, 1] + width * np.repeat(score, 3)
    level = rng.uniform(0.1, 0.9, count)
    return Examples(
        repository=repository,
        metric=np.where(cut % 2 == 0, "heldout", "train"),
        share=np.where(cut % 3 == 0, 0.25, 0.5),
        forecasts=forecasts,
        scale_terms=np.stack(
            [np.ones(count), np.log(width), np.log(forecasts.std(axis=1))], axis=1
        ),
        side_terms=np.stack([np.ones(count), 2 * level - 1], axis=1),
        outcome=outcome,
        ahead=ahead,
        cut=cut,
        not_moved=cut % 4 == 0,
        took_off=cut % 8 == 0,
    )


def votes_by_hand(given: Examples) -> Array:
    cells: dict[str, dict[tuple[str, float], list[int]]] = {}
    for place, repository in enumerate(given.repository.tolist()):
        cell = (str(given.metric[place]), float(given.share[place]))
        cells.setdefault(repository, {}).setdefault(cell, []).append(place)
    weight = np.zeros(given.outcome.size)
    for of in cells.values():
        for places in of.values():
            weight[places] = 1.0 / (len(cells) * len(of) * len(places))
    return weight


def surprise(stack: Stack, given: Examples) -> float:
    """Mean negative log likelihood, one example after the other, one repository one vote."""
    total = 0.0
    for place, vote in enumerate(votes_by_hand(given).tolist()):
        centre = float(np.dot(stack.weights, given.forecasts[place]))
        scale = math.exp(float(np.dot(stack.scale, given.scale_terms[place]))) + 0.002
        tilt = math.tanh(float(np.dot(stack.side, given.side_terms[place])))
        up = scale * math.exp(tilt)
        down = scale * math.exp(-tilt)
        beyond = float(given.outcome[place]) - centre
        density = (
            2
            * scipy.stats.t.pdf(beyond / (up if beyond > 0 else down), stack.degrees)
            / (up + down)
        )
        total -= vote * math.log(density)
    return total


def test_one_repository_has_one_vote_shared_by_its_cells() -> None:
    given = examples()
    assert votes(given) == pytest.approx(votes_by_hand(given))
    for name in ("many", "few", "also"):
        assert votes(given)[given.repository == name].sum() == pytest.approx(1 / 3)


def test_what_is_learned_makes_the_outcomes_likelier_also_those_of_other_runs() -> None:
    given = examples()
    stack = learn(given)
    untrained = replace(
        learned_stack(), weights=(1 / 7,) * 7, scale=(-2.0, 0.6, 0.0), side=(0.0, 0.0), degrees=4.0
    )
    fresh = examples(seed=1)
    for judged in (given, fresh):
        assert surprise(stack, judged) < surprise(untrained, judged) - 0.2
        assert surprise(stack, judged) < surprise(learned_stack(), judged)
    assert sum(stack.weights) == pytest.approx(1.0, abs=1e-9)
    assert int(np.argmax(stack.weights)) == 1, "the method that is right"


def test_the_chance_of_a_late_take_off_is_a_count_with_ten_runs_of_the_prior() -> None:
    """Of the cuts that have not moved every other one takes off; a repository counts once, next to
    one run of ten.
    """
    given = examples()
    shares = []
    for name in ("many", "few", "also"):
        cuts = {
            int(cut)
            for cut, whose in zip(given.cut, given.repository, strict=True)
            if whose == name
        }
        asked = [cut for cut in cuts if cut % 4 == 0]
        shares.append(sum(cut % 8 == 0 for cut in asked) / len(asked))
    assert learn(given).late_take_off == pytest.approx((1 + sum(shares)) / (10 + 3), abs=1e-4)


def test_outcomes_of_one_cut_that_keep_to_one_side_persist_and_others_do_not() -> None:
    """In `examples` one score holds for all computes of a cut."""
    given = examples()
    scattered = replace(
        given, outcome=given.forecasts[:, 1] + 0.1 * np.random.default_rng(5).standard_normal(360)
    )
    assert learn(given).persistence < 0.3
    assert learn(scattered).persistence > 1.0
