"""The list of checks before a start: every module is in it, and every command shows its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.local import checks, preflight
from rollcast.local.checks.check import Reach, Start
from rollcast.local.checks.checklist import CHECKLIST, check_start, make_checks
from tests.cli.command import rollcast

NO_CHECKS = {"__init__", "check", "checklist", "unchecked"}


def run_file(tmp_path: Path, **changes: Any) -> Path:
    model = tmp_path / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"0" * 1_000)
    settings = {
        "run": "r",
        "folder": str(tmp_path / "runs"),
        "model": {"path": str(model)},
        "tasks": {"evaluation": {"num_prompts": 20}},
        "recipe": {"prompts_per_step": 4},
        "budget": {"steps": 20},
    }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings | changes))
    return file


def test_each_module_of_the_folder_is_in_the_list_once() -> None:
    listed = [check.__name__ for stage in CHECKLIST for check in stage.checks]  # type: ignore[attr-defined]
    folder = Path(checks.__file__).parent
    modules = {file.stem for file in folder.glob("*.py")} - NO_CHECKS
    assert sorted(listed) == sorted(f"{checks.__name__}.{name}" for name in modules)


def test_every_command_shows_the_same_words(tmp_path: Path) -> None:
    """A caution on evaluations that are too few; nothing else depends on the machine."""
    file = run_file(tmp_path, tasks={"evaluation": {"num_prompts": 20, "every_steps": 10}})
    config, _ = preflight.load_to_start(file)
    (caution,) = [line for line in preflight.check(config) if line.startswith("tasks.evaluation")]
    assert caution in check_start(Start(config))
    shown = " ".join(rollcast("config", "check", file).stdout.split())
    assert f"caution: {caution}" in shown


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_config_of_the_model_is_one_sentence(text: str, tmp_path: Path) -> None:
    """Disk and memory are both counted from it."""
    file = run_file(tmp_path)
    (tmp_path / "model" / "config.json").write_text(text)
    checked = rollcast("config", "check", file, "--gpu", "80")
    assert checked.returncode == 2
    assert checked.stderr.count("config.json") == 2, checked.stderr  # the file, and the remedy
    assert "give a model's config.json" in checked.stderr


def missing_verifier(tmp_path: Path) -> dict[str, Any]:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{n}", "answer": "{n}"}}\n' for n in range(40)))
    dataset = {"kind": "jsonl", "name": "d", "path": str(rows), "verifier": "mathh"}
    return {"dataset": dataset, "evaluation": {"num_prompts": 20}}


def test_refusals_of_all_checks_are_one_error(tmp_path: Path) -> None:
    """The folder holds a run already, and a verifier is missing."""
    config, _ = preflight.load_to_start(run_file(tmp_path, tasks=missing_verifier(tmp_path)))
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "format.json").write_text('{"format": 1}')
    (tmp_path / "runs" / "r" / "steps.jsonl").touch()
    with pytest.raises(UserError) as error:
        preflight.check(config, resume=False)
    verifier, folder = str(error.value).splitlines()
    assert verifier.startswith("tasks.dataset.verifier = 'mathh'")
    assert folder.startswith("run folder ")


def test_a_check_whose_settings_are_refused_is_left_out(tmp_path: Path) -> None:
    """Rows are not graded by a verifier that is not there: it would be named twice."""
    config = load_run_config(run_file(tmp_path, tasks=missing_verifier(tmp_path)))
    (refused,) = [finding.words for finding in make_checks(Start(config)) if finding.refusal]
    assert refused.startswith("tasks.dataset.verifier = 'mathh'")


def test_only_the_settings_are_looked_at_for_another_machine(tmp_path: Path) -> None:
    """Too few evaluations are seen there too."""
    config = load_run_config(run_file(tmp_path, model={"path": "/no/such/model"}))
    (caution,) = check_start(Start(config, Reach.SETTINGS))
    assert caution.startswith("tasks.evaluation.every_steps = 100")
    with pytest.raises(UserError, match=r"model\.path = /no/such/model"):
        check_start(Start(config))
