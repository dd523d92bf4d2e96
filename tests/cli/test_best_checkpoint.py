"""`rollcast show RUN --best`: the sentence, the table, the commands; a run ended by `stop_when`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig
from tests.cli.command import refusal, rollcast
from tests.cli.run_folders import ended_early, settings, trained


def keep(config: RunConfig, *steps: int) -> None:
    for step in steps:
        folder = config.run_folder / "checkpoints" / f"1.{step}"
        folder.mkdir(parents=True)
        (folder / "controller.json").write_text("{}")


@pytest.fixture
def run(tmp_path: Path) -> RunConfig:
    """Its curve rises all the way."""
    config = settings(tmp_path)
    trained(config)
    return config


def test_the_best_is_named_with_its_chance_and_what_uses_it(run: RunConfig) -> None:
    keep(run, 30, 52, 60)
    (run.run_folder / "up.json").write_text("{}")
    answered = rollcast("show", run.run_folder, "--best")
    assert answered.returncode == 0, answered.stderr
    sentence, *lines = answered.stdout.splitlines()
    sentence = " ".join(answered.stdout.partition("  step ")[0].split())
    assert sentence.startswith(
        "The best of the 3 kept checkpoints is that of step 60 with a chance of over 99 %, level 0."
    )
    (marked,) = [line for line in lines if line.startswith("*")]
    assert marked.split()[:2] == ["*", "60"]
    assert f"up --config {run.run_folder}/up.json --resume --step 60" in lines[-2]
    assert lines[-1].endswith(f"rollcast model export {run.run_folder} --step 60 --folder best")


def test_json_has_every_checkpoint_and_one_without_an_evaluation(run: RunConfig) -> None:
    keep(run, 30, 52, 60)
    answer = json.loads(rollcast("show", run.run_folder, "--best", "--json").stdout)
    assert answer["best"]["step"] == 60
    rows = answer["checkpoints"]
    assert [row["step"] for row in rows] == [30, 52, 60]
    assert [row["reading"] is None for row in rows] == [False, True, False]
    assert sum(row["chance"] for row in rows) == pytest.approx(1.0)
    assert all(row["low"] < row["level"] < row["high"] for row in rows)
    # Between the readings at steps 50 and 55.
    assert 0.53 < rows[1]["level"] < 0.60
    assert answer["continue"].startswith("set model.from_step to 60 in another run")


def test_one_checkpoint_has_no_chance(run: RunConfig) -> None:
    keep(run, 30)
    answered = rollcast("show", run.run_folder, "--best")
    assert answered.stdout.startswith("The only kept checkpoint is that of step 30, level 0.")


def test_mistakes_are_one_sentence(run: RunConfig) -> None:
    folder = str(run.run_folder)
    assert refusal("show", folder, "--json") == (
        "--json: prints the best checkpoint; give --best too"
    )
    assert refusal("show", folder, "--best") == (
        f"run folder {folder}: holds no checkpoint yet; one is written every "
        "trainer.checkpoint_every_steps steps"
    )
    trainer = run.trainer.model_copy(update={"checkpoints": "s3://bucket/place"})
    write_resolved(run.model_copy(update={"trainer": trainer}), run.run_folder / "run.json")
    assert "its checkpoints are behind the URL of trainer.checkpoints" in refusal(
        "show", folder, "--best"
    )
    keep(run, 30)
    write_resolved(run, run.run_folder / "run.json")
    assert refusal("model", "export", folder, "--folder", f"{folder}/m", "--step", "31") == (
        f"--step 31: {folder}/checkpoints holds no checkpoint of that step; kept are those of "
        "steps 30"
    )


def test_a_run_that_stop_when_ended_names_its_best(run: RunConfig) -> None:
    keep(run, 50, 95)
    ended_early(run)
    said = " ".join(rollcast("show", run.run_folder).stdout.split())
    assert "`stop_when` ended the run: saturated on 3 refits in a row" in said
    answered = rollcast("fit", run.run_folder)
    assert "is that of step 95 with a chance of" in " ".join(answered.stdout.split())
