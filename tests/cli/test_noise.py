"""`rollcast fit` on readings around one level, and on rewards in a unit of their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rollcast as library
from rollcast.forecaster import page
from tests.cli.command import rollcast

NOISE = [
    (6, 0.25, 0.02, 1),
    (7, 0.6, 0.05, 2),
    (9, 0.17, 0.015, 3),
    (9, 0.8, 0.03, 4),
    (12, 0.4, 0.05, 5),
    (16, 0.5, 0.03, 6),
    (16, 0.3, 0.04, 7),
    (24, 0.7, 0.05, 11),
    (30, 0.3, 0.02, 9),
    (30, 0.45, 0.05, 10),
]
"""Readings, level, noise and seed; none of the one in fifty that rises by chance."""
LAW = ("asymptote", "headroom", "exponent", "midpoint", "initial", "best")
PAGE = Path(page.__path__[0])


def columns(count: int, level: float, noise: float, seed: int) -> dict[str, list[float]]:
    rates = level + noise * np.random.default_rng(seed).standard_normal(count)
    return {
        "step": [50.0 * (place + 1) for place in range(count)],
        "pass_rate": rates.round(4).tolist(),
    }


def written(path: Path, **values: list[float]) -> Path:
    rows = [
        ",".join(values),
        *(",".join(map(str, row)) for row in zip(*values.values(), strict=True)),
    ]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("series", NOISE, ids=str)
def test_noise_is_not_forecastable_and_has_no_ceiling(
    series: tuple[int, float, float, int],
) -> None:
    answer = library.forecast(columns(*series)).to_dict()
    assert answer["verdict"] in ("too_early", "no_learning")
    assert (answer["is_described"], answer["is_decidable"]) == (
        False,
        answer["verdict"] == "no_learning",
    )
    assert [answer[name] for name in LAW] == [None] * len(LAW)
    if answer["verdict"] == "too_early":
        assert "No trend yet" in answer["reason"]
        assert answer["has_forecast"], (
            "what is to come is still forecast, and the advice follows from it"
        )
        assert (
            "The readings show no trend, so this rests on what curves of other groups did"
            in answer["advice"]["reason"]
        )


def test_the_command_says_too_early_no_trend_yet(tmp_path: Path) -> None:
    path = written(tmp_path / "noise.csv", **columns(*NOISE[5]))
    said = rollcast("fit", path, "--plot", tmp_path / "noise.svg").stdout
    assert "too early: No trend yet: the odds of a rise against noise around one level are" in said
    assert "asymptote A " not in said
    assert "ceiling" not in (tmp_path / "noise.svg").read_text()


def test_nothing_is_green_without_a_law() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = (
        f"import {{ look }} from '{PAGE / 'words.js'}';"
        "const kinds = ['stop', 'continue', 'wait'], found = [true, false].map((is_described) =>"
        " kinds.map((kind) => look({ kind }, { is_described }))); "
        "console.log(JSON.stringify(found));"
    )
    command = [node, "--input-type=module", "-e", script]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(made.stdout) == [["bad", "good", "warn"], ["bad", "warn", "warn"]]


@pytest.mark.parametrize(("offset", "scale"), [(1.0, 0.5), (0.0, 0.01), (3.0, 0.125)])
def test_rewards_are_shown_in_their_own_unit_too(
    tmp_path: Path, offset: float, scale: float
) -> None:
    steps = np.arange(50.0, 1050.0, 50.0)
    rates = (
        0.2 + 0.5 / (1 + (300 / steps) ** 2) + 0.005 * np.random.default_rng(0).standard_normal(20)
    )
    rewards = (rates / scale - offset).round(5)
    path = written(tmp_path / "rewards.csv", step=steps.tolist(), reward=rewards.tolist())
    arguments = ("fit", path, "--offset", str(offset), "--scale", str(scale), "--at", "2000")
    said = rollcast(*arguments).stdout
    answer = json.loads(rollcast(*arguments, "--json").stdout)
    assert (answer["source"]["offset"], answer["source"]["scale"]) == (offset, scale)
    own = said.partition("in the unit of reward: now ")[2]
    assert float(own.split(",")[0]) == pytest.approx(rewards[-1], rel=1e-3, abs=1e-3)
    for name, values in (
        ("asymptote A", answer["asymptote"]),
        ("reading at 2000 steps", answer["predictions"][0]),
    ):
        shown = re.search(rf"^{name} +(\S+) +(\S+) +(\S+)$", own, re.MULTILINE)
        assert shown is not None, own
        wanted = [values[level] / scale - offset for level in ("q05", "q50", "q95")]
        assert [float(value) for value in shown.groups()] == pytest.approx(
            wanted, rel=1e-3, abs=1e-3
        )


def test_pass_rates_are_shown_once(tmp_path: Path) -> None:
    assert (
        "in the unit of"
        not in rollcast("fit", written(tmp_path / "rates.csv", **columns(*NOISE[0]))).stdout
    )
