"""`rollcast plan batch`: the library's answer, from run folders and from curves of other
frameworks; mistakes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.config.resolved import write_resolved
from rollcast.config.run import parse_run_config
from rollcast.scaling.decisions.batch_choice import choose, intermediate_shapes, law_at
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.batch_shape import BatchShape
from rollcast.scaling.law.curve import Curve
from testkit.forecast.batch_worlds import BatchWorld
from tests.cli.command import refusal, rollcast

WORLD = BatchWorld(0.2, 0.8, 1.3, 0.12, 0.5, 0.0, 512.0, 0.7, 0.0, 0.0)
SPLITS = {"a": BatchShape(8, 64), "b": BatchShape(32, 64), "c": BatchShape(128, 64)}
NUMBERS = ("--rollouts", "a=8", "--rollouts", "b=32", "--rollouts", "c=128", "--prompts", 64)
ROLLOUTS_PER_COMPUTE = 100_000
"""Rollouts at the bend of 8 x 64."""


def points(batch_shape: BatchShape, last: float = 30.0) -> Curve:
    return WORLD.curve(batch_shape, last, np.random.default_rng(batch_shape.rollouts))


def table(path: Path, compute: list[float], pass_rate: list[float], column: str) -> Path:
    rows = [f"{x!r},{y!r}\n" for x, y in zip(compute, pass_rate, strict=True)]
    path.write_text(f"{column},accuracy\n" + "".join(rows))
    return path


def curves_over_steps(folder: Path) -> list[str]:
    """a.csv, b.csv and c.csv; compute in steps, of which each costs another number of rollouts."""
    sources = []
    for name, batch_shape in SPLITS.items():
        curve = points(batch_shape)
        steps = curve.compute * ROLLOUTS_PER_COMPUTE / batch_shape.rollouts_per_step
        path = table(folder / f"{name}.csv", steps.tolist(), curve.pass_rate.tolist(), "step")
        sources.append(f"{name}={path}")
    return sources


def fallen(curve: Curve) -> list[float]:
    """Its pass rates, but back at the start from the 18th on."""
    return [*curve.pass_rate[:18].tolist(), *np.linspace(curve.pass_rate[17], 0.2, 12).tolist()]


def run_folder(folder: Path, name: str, batch_shape: BatchShape, **recipe: Any) -> Path:
    settings = {
        "run": name,
        "folder": str(folder),
        "model": {"path": "m"},
        "budget": {"steps": 200},
        "recipe": {
            "rollouts_per_prompt": batch_shape.rollouts,
            "prompts_per_step": batch_shape.prompts,
            **recipe,
        },
    }
    config = parse_run_config(settings, source="test")
    config.run_folder.mkdir()
    write_resolved(config, config.run_folder / "run.json")
    (config.run_folder / "format.json").write_text('{"format": 1}')
    curve = points(batch_shape)
    lines = [
        {"incarnation": 1, "step": 10 * place, "pass_rate": rate, "compute_device_hours": compute}
        for place, (compute, rate) in enumerate(
            zip(curve.compute.tolist(), curve.pass_rate.tolist(), strict=True), start=1
        )
    ]
    (config.run_folder / "evaluations.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    return config.run_folder


def test_curves_over_steps_are_compared_over_rollouts_as_the_library_compares_them(
    tmp_path: Path,
) -> None:
    picture = tmp_path / "batch.svg"
    arguments = (*curves_over_steps(tmp_path), *NUMBERS, "--budget", 3e6, "--candidate", "16x256")
    answered = rollcast("plan", "batch", *arguments, "--json", "--plot", picture)
    assert answered.returncode == 0, answered.stderr
    assert "its steps are counted as 8 x 64 = 512 rollouts each" in answered.stderr
    answer = json.loads(answered.stdout)
    runs = []
    for batch_shape in SPLITS.values():
        curve = points(batch_shape)
        runs.append(
            (
                batch_shape,
                fit(Curve.from_points(curve.compute * ROLLOUTS_PER_COMPUTE, curve.pass_rate)),
            )
        )
    [law] = law_at(runs, [3e6])
    batch_shapes = sorted([*intermediate_shapes(SPLITS.values()), BatchShape(16, 256)])
    choice = choose(law, batch_shapes)
    assert [row["name"] for row in answer["splits"]] == [
        batch_shape.name for batch_shape in batch_shapes
    ]
    assert [row["best_with"] for row in answer["splits"]] == pytest.approx(
        choice.best_probability, abs=0.02
    )
    assert [row["expected_loss"] for row in answer["splits"]] == pytest.approx(
        choice.expected_loss, abs=1e-3
    )
    best = batch_shapes[choice.best]
    assert answer["recommended"]["name"] == best.name
    assert answer["recommended"]["steps"] == pytest.approx(3e6 / best.rollouts_per_step)
    assert answer["unit"] == "rollouts"
    assert answer["varied"] == {"rollouts_per_prompt": [8, 32, 128], "prompts_per_step": [64]}
    assert "prompts_per_step is 64 in every run" in " ".join(answer["caveats"])
    assert picture.read_text().lstrip().startswith("<?xml")
    shown = " ".join(rollcast("plan", "batch", *arguments).stdout.split())
    assert f"{best.rollouts} rollouts of {best.prompts} prompts for about" in shown
    assert "With other budgets: " in shown
    assert " at 750,000 (" in shown


def test_run_folders_say_their_splits_and_what_else_differs(tmp_path: Path) -> None:
    small = run_folder(tmp_path, "small", SPLITS["a"])
    large = run_folder(tmp_path, "large", SPLITS["b"], lm_head="model")
    answered = rollcast("plan", "batch", small, large, "--budget", 15, "--json")
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    assert [row["name"] for row in answer["splits"]] == ["8x64", "16x64", "32x64"]
    assert answer["unit"] == "device-hours"
    # The last third of the curve tells what a step costs: ten evaluations, 100 steps.
    compute = points(SPLITS["a"]).compute
    cost = (compute[-1] - compute[-11]) / 100
    assert answer["splits"][0]["steps"] == pytest.approx(15 / cost)
    caveats = " ".join(answer["caveats"])
    assert "large and small differ in recipe.lm_head too" in caveats
    assert "have one learning rate for batches of 2048 and 512 rollouts" in caveats
    assert "give a slope and no best number" in caveats
    assert (
        answer["missing"]["rollouts_per_prompt"] not in (8, 16, 32)
        or answer["missing"]["prompts_per_step"] != 64
    )


def test_runs_of_one_split_recommend_nothing_and_name_the_missing_run(tmp_path: Path) -> None:
    [source, *_] = curves_over_steps(tmp_path)
    options = ("--rollouts", 8, "--prompts", 64, "--budget", 3e6)
    answer = json.loads(rollcast("plan", "batch", source, *options, "--json").stdout)
    assert (answer["recommended"], answer["probability"], answer["budgets"]) == (None, None, [])
    assert answer["missing"]["name"] == "32x64"
    shown = " ".join(
        rollcast("plan", "batch", source, *options, "--plot", tmp_path / "one.png").stdout.split()
    )
    assert "no split is recommended, since every run with a forecast has 8x64" in shown
    assert (
        "Missing: a run of 32 rollouts of 64 prompts, since no run has more than 8 rollouts "
        "per prompt"
    ) in shown


def test_settings_that_changed_together_and_a_run_that_fell_are_named(tmp_path: Path) -> None:
    sources = curves_over_steps(tmp_path)
    together = (
        "--rollouts",
        "a=8",
        "--rollouts",
        "b=32",
        "--prompts",
        "a=128",
        "--prompts",
        "b=32",
    )
    answer = json.loads(
        rollcast("plan", "batch", *sources[:2], *together, "--budget", 2e6, "--json").stdout
    )
    assert [row["name"] for row in answer["splits"]] == ["8x128", "16x64", "32x32"]
    assert "Rollouts and prompts changed together" in " ".join(answer["caveats"])
    curve = points(SPLITS["b"])
    table(tmp_path / "b.csv", (curve.compute * 50).tolist(), fallen(curve), "step")
    answer = json.loads(
        rollcast("plan", "batch", *sources, *NUMBERS, "--budget", 2e6, "--json").stdout
    )
    assert "b (32x64): verdict broken; it is left out of the law" in " ".join(answer["caveats"])
    assert answer["varied"]["rollouts_per_prompt"] == [8, 128]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("a={a}", "--budget", "0"), "--budget 0: compute must be in (0, 1e12]"),
        (("runs/nowhere", "--budget", "9"), "runs/nowhere: cannot be read"),
        (("={a}", "--budget", "9"), "needs a name and a curve or run folder, as a=curve.csv"),
        (("a={a}", "a={b}", "--budget", "9"), "a: is the name of 2 runs; give each its own"),
        (
            ("a={a}", "--budget", "9"),
            "a: its rollouts_per_prompt is not known; give it, as --rollouts a=8",
        ),
        (
            ("a={a}", "--rollouts", "a=8", "--budget", "9"),
            "its prompts_per_step is not known; give it, as --prompts",
        ),
        (
            ("a={a}", "--rollouts", "a=many", "--budget", "9"),
            "'many' is no number from 1 to 1000000",
        ),
        (("a={a}", "--rollouts", "z=8", "--budget", "9"), "no run has the name 'z'; give one of a"),
        (("a={a}", "--rollouts", "8", "--rollouts", "a=9", "--budget", "9"), "a has 8 already"),
        (
            ("{folder}", "--rollouts", "small=8", "--budget", "9"),
            "the run file of small has this number",
        ),
        (
            ("a={a}", "--candidate", "16", "--budget", "9"),
            "--candidate 16: is no split; write rollouts",
        ),
        (
            ("a={a}", "z={a}", "--rollouts", "8", "--prompts", "64", "--budget", "9"),
            "z: is the same run as a; give each run once",
        ),
        (
            ("a={a}", "{folder}", "--rollouts", "8", "--prompts", "64", "--budget", "9"),
            "choose one unit",
        ),
        (
            ("a={fallen}", "--rollouts", "8", "--prompts", "64", "--budget", "9"),
            "no run has a forecast (a: broken)",
        ),
        (
            ("a={a}", "b={b}", "--rollouts", "8", "--prompts", "64", "--budget", "9"),
            "--budget 9: buys no step of any split; it counts rollouts, not steps",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    curves_over_steps(tmp_path)
    curve = points(SPLITS["b"])
    places = {
        "{a}": str(tmp_path / "a.csv"),
        "{b}": str(tmp_path / "b.csv"),
        "{fallen}": str(
            table(tmp_path / "fallen.csv", (curve.compute * 50).tolist(), fallen(curve), "step")
        ),
        "{folder}": str(run_folder(tmp_path, "small", SPLITS["a"])),
    }
    words = []
    for argument in arguments:
        for mark, path in places.items():
            argument = argument.replace(mark, path)
        words.append(argument)
    said = refusal("plan", "batch", *words)
    assert sentence in said
    assert "\n" not in said
