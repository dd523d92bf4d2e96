"""`rollcast ablate`: the table that it makes of runs that are there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rollcast.cli.ablate import choose_variants
from rollcast.cli.ablation_report import curve_of_run
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, load_run_config
from rollcast.local.ablation import plan
from rollcast.scaling.decisions.leave_one_out import leave_one_out
from rollcast.scaling.decisions.repeats import Repeats
from rollcast.scaling.law.curve import SigmoidParameters
from tests.cli.command import rollcast

ROOT = Path(__file__).parents[2]
BASE = ROOT / "configs/ablation.yaml"
LAWS = {
    "whole": (0.8, 1.0),
    "without-cispo": (0.6, 1.0),
    "without-pipeline": (0.8, 2.2),
    "without-fp32-head": (0.8, 1.0),
}


def record(folder: Path, config: RunConfig, law: tuple[float, float]) -> None:
    """A finished run's folder: 40 evaluations of a law with midpoint 0.02 x law[1], as the trainer
    writes them.
    """
    folder.mkdir(parents=True)
    asymptote, slowness = law
    rng = np.random.default_rng(sum(map(ord, config.run)))
    lines = []
    for step in range(0, 205, 5):
        compute = 0.001 * step
        rate = float(
            SigmoidParameters(0.2, asymptote, 2.0, 0.02 * slowness).pass_rate([compute])[0]
        )
        error = math.sqrt(rate * (1 - rate) / 2000)
        line = {
            "run": config.run,
            "dataset": "arithmetic",
            "incarnation": 1,
            "step": step,
            "pass_rate": min(1.0, rate + error * float(rng.standard_normal())),
            "standard_error": error,
            "compute_device_hours": compute,
            "trained_tokens": 3000 * step,
            "samples": 2000,
            "at": 1000.0 + step,
        }
        lines.append(json.dumps(line) + "\n")
    (folder / "format.json").write_text('{"format": 1}')
    (folder / "evaluations.jsonl").write_text("".join(lines))
    (folder / "result.json").write_text("{}")
    write_resolved(
        config.model_copy(update={"folder": config.folder.absolute()}), folder / "up.json"
    )


def test_an_evaluation_that_lacks_prompts_is_no_part_of_a_runs_curve_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {
            "incarnation": 1,
            "step": step,
            "pass_rate": 0.1 + step / 100,
            "compute_device_hours": 0.1 + step / 10,
        }
        for step in range(0, 60, 10)
    ]
    lines[3] |= {"num_prompts": 20, "asked_prompts": 40, "missing_prompts": 20}
    (tmp_path / "format.json").write_text('{"format": 1}')
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = curve_of_run(tmp_path, "x")
    assert curve.pass_rate.tolist() == pytest.approx([0.2, 0.3, 0.5, 0.6]), (
        "the point of step 0 is the start of the law"
    )
    said = capsys.readouterr().err
    assert f"{tmp_path}: 1 evaluation with less than 90 % of the prompts graded left out" in said


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A run file whose model is missing, and a set in which two seeds of four recipes are finished
    already.
    """
    settings: dict[str, Any] = yaml.safe_load(BASE.read_text())
    settings["model"]["path"] = str(tmp_path / "no-model")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    base = load_run_config(file)
    variants = choose_variants(base, "cispo,pipeline,fp32_head", None)
    for item in plan(base, variants, num_seeds=2, folder=tmp_path / "set"):
        record(item.config.run_folder, item.config, LAWS[item.variant.name])
    return file


def test_finished_runs_are_not_repeated_a_failed_one_is_told_and_the_table_is_made(
    recorded: Path,
) -> None:
    folder = recorded.parent / "set"
    command = ("ablate", "--config", recorded, "--seeds", 2, "--folder", folder, "--continue")
    without = ("--without", "cispo,pipeline,fp32_head,prompt_average")
    picture = recorded.parent / "table.svg"
    answered = rollcast(*command, *without, "--json", "--plot", picture)
    assert answered.returncode == 1, answered.stderr
    answer = json.loads(answered.stdout)
    states = {
        record["run"]: (record["state"], record["seconds"] is None) for record in answer["set"]
    }
    failed = {"miniature-without-prompt-average-s0", "miniature-without-prompt-average-s1"}
    assert {run for run, (state, _) in states.items() if state == "failed"} == failed
    assert all(
        state == "finished" and skipped
        for run, (state, skipped) in states.items()
        if run not in failed
    )
    assert all("no-model" in record["error"] for record in answer["set"] if record["run"] in failed)
    table = answer["leave_one_out"]
    expected = [
        Repeats.from_curves(
            name, [curve_of_run(folder / f"miniature-{name}-s{seed}", "x") for seed in (0, 1)]
        )
        for name in ("whole", "without-cispo", "without-pipeline", "without-fp32-head")
    ]
    rows = leave_one_out(expected[0], expected[1:], null_controls={"without-fp32-head"}).rows
    for row, one in zip(table["rows"], rows, strict=True):
        assert (row["curve"], row["num_runs"], row["kind"]) == (
            one.name,
            2,
            one.kind and str(one.kind),
        )
        assert list(row["asymptote"].values()) == pytest.approx(one.asymptote)
    kinds = {row["curve"]: row["kind"] for row in table["rows"]}
    assert kinds == {
        "whole": None,
        "without-cispo": "ceiling mover",
        "without-pipeline": "efficiency shaper",
        "without-fp32-head": "null control: no difference here",
    }
    assert (
        f"without-fp32-head {table['rows'][3]['compute_ratio']['q50']:.2f} times"
        in answer["advice"][-1]
    )
    assert not any("without-fp32-head" in line for line in answer["advice"][:-1])
    ceiling, *_ = [line for line in answer["advice"] if "without-cispo" in line]
    speed, *_ = [line for line in answer["advice"] if "without-pipeline" in line]
    assert answer["advice"].index(ceiling) < answer["advice"].index(speed)
    assert answer["advice"][0].startswith("Raise the ceiling first")
    assert f"A falls by {table['rows'][1]['asymptote_loss']['q50']:.3f}; do not" in ceiling
    assert f"taken {table['rows'][2]['compute_ratio']['q50']:.2f} times the compute" in speed
    assert json.loads((folder / "ablation.json").read_text())["leave_one_out"] == table
    assert 'id="axes_2"' in picture.read_text()

    shown = rollcast(*command, *without)
    assert shown.returncode == 1
    for text in (
        *answer["advice"],
        f"compute to {table['half_way']:.3f}",
        "failed: miniature-without-prompt-average-s0: model.path",
    ):
        assert text in shown.stdout


def test_a_set_that_was_trained_elsewhere_ends_in_the_same_table(recorded: Path) -> None:
    """Folders as the trainer leaves them, one of them missing,
    in the end without their run files.
    """
    here = (
        "ablate",
        "--config",
        recorded,
        "--seeds",
        2,
        "--without",
        "cispo,pipeline,fp32_head",
        "--json",
    )
    folder = recorded.parent / "set"
    expected = json.loads(rollcast(*here, "--folder", folder, "--continue").stdout)
    elsewhere = recorded.parent / "fetched"
    (elsewhere / "miniature-whole-s0").mkdir(parents=True)
    for run in folder.glob("miniature-*"):
        (elsewhere / run.name).mkdir(exist_ok=True)
        (elsewhere / run.name / "format.json").write_text('{"format": 1}')
        (elsewhere / run.name / "evaluations.jsonl").write_bytes(
            (run / "evaluations.jsonl").read_bytes()
        )
    steps = [
        {"step": 1, "interrupted_ratio": 0.5},
        {"step": 1, "interrupted_ratio": 0.1},
        {"step": 2},
    ]
    (elsewhere / "miniature-whole-s0/steps.jsonl").write_text(
        "".join(json.dumps(step) + "\n" for step in steps)
    )
    before = sorted(elsewhere.rglob("*"))
    answered = rollcast(*here, "--from-folder", elsewhere)
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    assert answer["leave_one_out"] == expected["leave_one_out"]
    assert [record["interrupted_ratio"] for record in answer["set"]] == [0.1, *[None] * 7]
    assert answer["notes"] == [
        "Thinking was cut short in 0.1000 to 0.1000 of the rollouts of a run."
    ]
    assert sorted(elsewhere.rglob("*")) == before

    for file, text in (
        ("evaluations.jsonl", '{"step": 7, "pass'),
        ("steps.jsonl", '{"interrupted_ratio": 0.5}\n['),
    ):
        with (elsewhere / "miniature-whole-s0" / file).open("a") as lines:
            lines.write(f"{text}\n")
    (elsewhere / "miniature-without-cispo-s1/evaluations.jsonl").write_text("no\nevaluation\n")
    answered = rollcast(*here, "--from-folder", elsewhere)
    assert answered.returncode == 1
    assert answered.stderr == (
        f"{elsewhere}/miniature-whole-s0: 1 line left out, of evaluations.jsonl, malformed\n"
    )
    (failed,) = (
        record for record in json.loads(answered.stdout)["set"] if record["state"] == "failed"
    )
    assert (failed["run"], failed["error"].split(" holds ")[1]) == (
        "miniature-without-cispo-s1",
        "no evaluation after the first step; lines of its files that are no records: 2",
    )

    other = json.loads((folder / "miniature-whole-s1/up.json").read_text())
    other["recipe"]["temperature"] = 0.5
    (elsewhere / "miniature-whole-s1/run.json").write_text(json.dumps(other))
    refused = rollcast(*here, "--from-folder", elsewhere)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        "miniature-whole-s1: was made with another recipe or seed than the set's" in refused.stderr
    )


def test_a_set_is_neither_overwritten_nor_mixed_with_other_settings(recorded: Path) -> None:
    command = (
        "ablate",
        "--config",
        recorded,
        "--seeds",
        2,
        "--folder",
        recorded.parent / "set",
        "--without",
        "cispo",
    )
    again = rollcast(*command)
    assert again.returncode == 2
    assert "holds a run already; go on with --continue" in again.stderr
    other = rollcast(*command, "--continue", "--steps", 70)
    assert other.returncode == 2
    assert "was made with other settings (budget); choose another --folder" in other.stderr


def test_without_the_whole_recipe_there_is_no_table(recorded: Path) -> None:
    for seed in (0, 1):
        folder = recorded.parent / "set" / f"miniature-whole-s{seed}"
        for file in folder.iterdir():
            file.unlink()
    command = (
        "ablate",
        "--config",
        recorded,
        "--seeds",
        2,
        "--folder",
        recorded.parent / "set",
        "--without",
        "cispo",
    )
    result = rollcast(*command, "--continue")
    assert result.returncode == 2
    assert "no table: no run of the whole recipe is finished" in result.stderr


@pytest.mark.parametrize(
    ("benchmark", "page"), [("ablation", "lab/notes.md"), ("controls", "docs/recipes.md")]
)
def test_the_documented_tables_are_those_of_the_results(benchmark: str, page: str) -> None:
    figures = json.loads((ROOT / "benchmarks/results" / f"{benchmark}.json").read_text())["figures"]
    assert all(run["state"] == "finished" for run in figures["runs"])
    document = (ROOT / page).read_text()
    table = figures["reread"]["leave_one_out"]
    head = (
        f"| B at A = {table['common_asymptote']:.3f} | compute to {table['half_way']:.3f} | found "
        "as |"
    )
    section = document.partition(head)[2].partition("\n\n")[0]
    rows = {line.split(" | ")[0].strip("| "): line for line in section.splitlines()[2:]}
    assert list(rows) == [row["curve"] for row in table["rows"]]
    for row in table["rows"]:
        line = rows[row["curve"]]
        assert f"| {row['asymptote']['q50']:.3f} ({row['asymptote']['q05']:.3f} to" in line
        assert line.endswith(f"| {row['kind'] or ''} |")
        if ratio := row["compute_ratio"]:
            assert f"| {ratio['q50']:.2f} ({ratio['q05']:.2f} to {ratio['q95']:.2f}) |" in line
