"""`rollcast replay`, as a user types it; the replay itself is in tests/trainer/test_replay.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rollcast
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_tiny_model
from testkit.trainer.recorded_run import make_recorded_run, recorded_config
from tests.cli.command import process, refusal


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    make_tiny_model(folder / "model", hidden=32, max_length=128)
    config = recorded_config(folder / "model", folder, steps=2)
    make_recorded_run(config, ranks)
    return config.run_folder


def test_a_step_is_replayed_and_another_recipe_compared(run: Path) -> None:
    said = process("replay", str(run), "--step", "2", "--set", "recipe.aggregation=token")
    assert "everything that was checked agrees with the record" in said.stdout
    assert "under another recipe" in said.stdout
    answer = json.loads(process("replay", str(run), "--step", "2", "--json").stdout)
    assert answer["disagreeing"] == []
    assert {item["component"] for item in answer["comparisons"]} == {
        "generator",
        "grader",
        "trainer",
    }


def test_numbers_that_json_lacks_are_null(run: Path, tmp_path: Path) -> None:
    """An update whose gradient is not finite has such figures."""
    (tmp_path / "recorded").mkdir()
    folder = tmp_path / "recorded" / "step-2"
    shutil.copytree(run / "recorded" / "step-2", folder)
    record = json.loads((folder / "step.json").read_text())
    record["figures"] |= {"loss": float("nan"), "grad_norm": float("inf")}
    (folder / "step.json").write_text(json.dumps(record))
    printed = process("replay", str(tmp_path), "--step", "2", "--json").stdout
    answer = json.loads(printed, parse_constant=pytest.fail)
    assert answer["figures"]["loss"]["recorded"] is None
    [loss] = [item for item in answer["comparisons"] if item["check"] == "loss"]
    assert loss["state"] == "disagrees"
    assert loss["largest"] is None


def test_a_mistake_is_one_sentence(run: Path, tmp_path: Path) -> None:
    assert "--step 9: is not recorded; choose among 1, 2" in refusal(
        "replay", str(run), "--step", "9"
    )
    assert "no step is recorded; set record.every_steps" in refusal(
        "replay", str(tmp_path), "--step", "1"
    )
    assert "there is no such folder" in refusal("replay", str(tmp_path / "nowhere"), "--step", "1")


def test_a_step_opens_in_python(run: Path, tmp_path: Path) -> None:
    bundle = rollcast.load_step(run / "recorded" / "step-2")
    assert isinstance(bundle, rollcast.StepBundle)
    assert bundle.step == 2
    assert bundle.groups[0].rollouts[0].token_ids.dtype == "int32"
    with pytest.raises(rollcast.InputError, match="give the folder of a recorded step"):
        rollcast.load_step(tmp_path)


def change(record: Any, *place: str | int, value: Any) -> str:
    """The record with another value at one place, as text."""
    *parents, last = place
    part = record
    for parent in parents:
        part = part[parent]
    part[last] = value
    return json.dumps(record)


CHANGES: dict[str, Callable[[Any], str]] = {
    "deep": lambda record: "[" * 100_000 + "]" * 100_000,
    "short": lambda record: '{"run": "x"}',
    "rollout": lambda record: change(record, "sequences", 0, "rollout", value=99),
    "negative": lambda record: change(record, "sequences", 0, "group", value=-1),
    "tasks": lambda record: change(record, "tasks", value=[]),
    "nothing": lambda record: change(record, "sequences", value=[]),
    "figure": lambda record: change(record, "figures", "loss", value="x"),
    "span": lambda record: change(
        record, "groups", 0, "rollouts", 0, "version_spans", 0, "end", value=10**9
    ),
    "mask": lambda record: change(
        record, "sequences", 0, "loss_mask", value={"array": "groups.0.prompt_token_ids"}
    ),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_step_that_contradicts_itself_is_refused(run: Path, tmp_path: Path, changed: str) -> None:
    folder = tmp_path / "step-2"
    shutil.copytree(run / "recorded" / "step-2", folder)
    record = json.loads((folder / "step.json").read_text())
    (folder / "step.json").write_text(CHANGES[changed](record))
    with pytest.raises(rollcast.InputError, match="is damaged"):
        rollcast.load_step(folder)
