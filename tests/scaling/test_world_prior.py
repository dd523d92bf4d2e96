"""`python -m benchmarks.world_prior` on small curves: what it writes can be read; who is judged has no vote."""

from __future__ import annotations

import csv
import json
import math
import random
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR
from rollcast.scaling.posterior.prior_file import read_prior

REPOSITORIES = ("one/climbs", "two/climbs", "three/stays")
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def write_curves(folder: Path) -> None:
    """Two groups whose runs go on rising, and one whose runs stay where they are; one has a cell for itself."""
    folder.mkdir()
    rows = [("name", "source_repo", "metric")]
    for place, repository in enumerate((*REPOSITORIES, REPOSITORIES[0])):
        name, rng = f"curve-{place}", random.Random(place)
        gain = 0.0 if repository.endswith("stays") else 0.4
        readings = [
            (x, 0.2 + gain * math.log1p(x) / math.log(17) + rng.gauss(0, 0.01)) for x in range(place, place + 16)
        ]
        (folder / f"{name}.csv").write_text("x,y\n" + "".join(f"{x},{y:.6f}\n" for x, y in readings))
        rows.append((name, repository, "heldout" if place < len(REPOSITORIES) else "train"))
    with (folder / "index.csv").open("w") as index:
        csv.writer(index).writerows(rows)


def search(curves: Path, out: Path, candidates: int) -> str:
    words = ["--curves", curves, "--out", out, "--candidates", candidates, "--seed", 3]
    command = [sys.executable, "-m", "benchmarks.world_prior", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def least_of_the_others(losses: list[dict[str, Any]], left_out: str, fewest: int = 2) -> list[int]:
    """The same choice of five of ten, written out; `fewest`: repositories of a cell that has a vote."""
    scores = []
    for line in losses:
        cells = []
        for cell, of in line["losses"].items():
            others = [name for name in of if name != left_out]
            if len(of) < fewest or not others:
                continue
            cells.append(sum(of[n] for n in others) / sum(losses[0]["losses"][cell][n] for n in others))
        scores.append(sum(cells) / len(cells))
    return sorted(range(len(scores)), key=lambda number: scores[number])[:5]


def test_each_repository_gets_the_mean_of_what_does_best_on_the_others(tmp_path: Path) -> None:
    write_curves(tmp_path / "curves")
    search(tmp_path / "curves", tmp_path / "out", 2)
    first = (tmp_path / "out" / "losses.jsonl").read_text()
    assert "candidate 1:" not in search(tmp_path / "curves", tmp_path / "out", 2), "nothing is fitted twice"
    said = search(tmp_path / "curves", tmp_path / "out", 10)
    assert "candidate 1:" not in said
    assert "candidate 9:" in said
    text = (tmp_path / "out" / "losses.jsonl").read_text()
    assert text.startswith(first)
    losses = [json.loads(line) for line in text.splitlines()[1:]]
    chosen = {}
    for repository in REPOSITORIES:
        path = tmp_path / "out" / f"{repository.replace('/', '__')}.json"
        origin = json.loads(path.read_text())
        assert (origin["left_out"], repository in origin["learned_from"]) == (repository, False)
        chosen[repository] = tuple(origin["mean_of_candidates"])
        assert list(chosen[repository]) == least_of_the_others(losses, repository)
        priors = [losses[number]["prior"] for number in chosen[repository]]
        assert json.loads(json.dumps(asdict(read_prior(path)))) == origin["prior"]
        centres = [prior["asymptote"][0] for prior in priors]
        assert origin["prior"]["asymptote"][0] == pytest.approx(statistics.mean(centres), abs=1e-4)
        for name in ("turn_rate", "turn_scale", "transient_scale", "drift_length"):
            mean = statistics.geometric_mean(prior[name] for prior in priors)
            assert origin["prior"][name] == pytest.approx(mean, abs=1e-4)
        odds = statistics.geometric_mean(prior["tail_weight"] / (1 - prior["tail_weight"]) for prior in priors)
        assert origin["prior"]["tail_weight"] == pytest.approx(odds / (1 + odds), abs=1e-4)
        assert sum(origin["prior"]["drift_weight"]) == pytest.approx(1.0, abs=1e-3)
    with_lone_cells = {name: tuple(least_of_the_others(losses, name, fewest=1)) for name in REPOSITORIES}
    assert with_lone_cells != chosen, "a cell of one repository must matter here, or this test does not show it"
    assert len(set(chosen.values())) > 1, "the choice must depend on who is left out, or this test shows nothing"


def test_the_losses_are_those_of_forecasts_of_the_ends(tmp_path: Path) -> None:
    write_curves(tmp_path / "curves")
    search(tmp_path / "curves", tmp_path / "out", 1)
    found = json.loads((tmp_path / "out" / "losses.jsonl").read_text().splitlines()[1])["losses"]["heldout 0.5"]
    for place, repository in enumerate(REPOSITORIES):
        lines = (tmp_path / f"curves/curve-{place}.csv").read_text().splitlines()
        points = [(float(p["x"]), float(p["y"])) for p in csv.DictReader(lines)]
        shift = 1.0 if place == 0 else 0.0
        seen, ahead = points[:8], points[-3:]
        curve = Curve.from_points([x + shift for x, _ in seen], [y for _, y in seen])
        forecast = fit(curve, FitOptions(prior=DEFAULT_PRIOR))
        said = forecast.predictive([x + shift for x, _ in ahead], LEVELS).mean(axis=1)
        outcome = sum(y for _, y in ahead) / 3
        loss = sum(
            (level if outcome > value else 1 - level) * abs(outcome - value)
            for level, value in zip(LEVELS, said, strict=True)
        )
        assert abs(found[repository] - loss / 5) < 1e-9


def test_other_curves_and_no_curves_are_refused_in_one_sentence(tmp_path: Path) -> None:
    write_curves(tmp_path / "curves")
    search(tmp_path / "curves", tmp_path / "out", 1)
    (tmp_path / "curves" / "curve-1.csv").write_text("x,y\n" + "".join(f"{x},0.5\n" for x in range(16)))
    for curves, sentence in (("curves", "holds the losses of other curves; remove it"), ("none", "holds no curves")):
        words = ["--curves", tmp_path / curves, "--out", tmp_path / "out", "--candidates", 1]
        command = [sys.executable, "-m", "benchmarks.world_prior", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert sentence in done.stderr
