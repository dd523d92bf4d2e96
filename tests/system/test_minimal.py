"""The minimal run file: what it leaves out is filled in, and `rollcast up` brings it to its end; then it is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.run import load_run_config
from rollcast.tasks.arithmetic import prompt_text
from testkit.system.audit import check_every_task_once, read_lines
from tests.system.test_up import rollcast, said

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
STEPS = 2


def test_ten_lines_run_to_the_end_of_their_budget_and_go_on(tmp_path: Path, model_folder: Path) -> None:
    text = (ROOT / "configs" / "minimal.yaml").read_text()
    assert len(text.splitlines()) <= 10
    settings: dict[str, Any] = yaml.safe_load(text)
    settings["model"]["path"] = str(model_folder)
    settings["tasks"]["dataset"]["verifier"] = "arithmetic"  # what this model was taught to write
    settings["budget"]["steps"] = STEPS
    sums = [(a, b) for a in range(40) for b in range(10)]
    rows = [json.dumps({"prompt": prompt_text(a, b), "answer": str(a + b)}) for a, b in sums]
    (tmp_path / settings["tasks"]["dataset"]["path"]).write_text("\n".join(rows))
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    with rollcast(tmp_path, "up", "--config", "run.yaml") as up:
        assert up.wait(600) == 0, said(tmp_path)

    assert "filled in: model.max_length" in said(tmp_path)
    folder = tmp_path / "runs" / settings["run"]
    config = load_run_config(folder / "run.json")
    own = json.loads((model_folder / "config.json").read_text())["max_position_embeddings"]
    assert config.model.max_length == own
    assert config.recipe.max_prompt_tokens + config.recipe.max_completion_tokens == own
    assert config.recipe.length_control.kind == "none"
    assert config.tasks.evaluation.num_prompts == len(sums) // 5
    assert (config.recipe.prompts_per_step, config.recipe.rollouts_per_prompt) == (48, 16), (
        "the paper's, where they fit"
    )
    assert [line["step"] for line in read_lines(folder / "steps.jsonl")] == list(range(1, STEPS + 1))
    assert [line["step"] for line in read_lines(folder / "evaluations.jsonl")] == [0, STEPS]
    check_every_task_once(read_lines(folder / "tasks.jsonl"))

    settings["budget"]["steps"] = STEPS + 1
    settings["recipe"] = {"optimizer": {"learning_rate": 1e-6}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "said").unlink()
    with rollcast(tmp_path, "up", "--config", "run.yaml", "--resume") as up:
        assert up.wait(600) == 0, said(tmp_path)
    lines = [line.partition(" ")[2] for line in said(tmp_path).splitlines() if "resumed with another setting" in line]
    assert lines == [
        "resumed with another setting: recipe.optimizer.learning_rate 5e-07 -> 1e-06: the schedule goes on at its step "
        "with the new one",
        f"resumed with another setting: budget.steps {STEPS} -> {STEPS + 1}",
    ]
    rates = [line["learning_rate"] for line in read_lines(folder / "steps.jsonl")]
    assert rates == pytest.approx([5e-9, 1e-8, 3e-8]), "step / 100 of the rate, that of the last step the new one's"
