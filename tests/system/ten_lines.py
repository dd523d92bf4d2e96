"""A run file of ten lines on the tests' model, and what must hold of its run when it has ended."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from rollcast.tasks.arithmetic import prompt_text
from testkit.system.audit import check_every_task_once, read_lines
from testkit.system.command import read_output

MINIMAL = Path(__file__).parents[2] / "configs" / "minimal.yaml"
STEPS, EVERY = 12, 6
BATCH = {"prompts_per_step": 8, "rollouts_per_prompt": 8}
"""Ten times fewer than the paper's, which would fit as well: 768 rollouts a step take these cores
half a minute."""
SUMS = [(a, b) for a in range(20) for b in range(8)]


def minimal_settings(folder: Path, model_folder: Path) -> dict[str, Any]:
    """The shipped minimal file on the tests' model and sums: small batches, two of each service,
    three points.
    """
    text = MINIMAL.read_text()
    assert len(text.splitlines()) <= 10
    settings: dict[str, Any] = yaml.safe_load(text)
    settings["model"]["path"] = str(model_folder)
    settings["tasks"]["dataset"]["verifier"] = "arithmetic"  # what this model was taught to write
    settings["tasks"]["evaluation"] = {"every_steps": EVERY, "rollouts_per_prompt": 4}
    settings["recipe"] = BATCH
    settings["budget"]["steps"] = STEPS
    settings |= {"local": {"generators": 2, "trainer_ranks": 2}, "forecaster": {"http_port": 0}}
    rows = [json.dumps({"prompt": prompt_text(a, b), "answer": str(a + b)}) for a, b in SUMS]
    (folder / settings["tasks"]["dataset"]["path"]).write_text("\n".join(rows))
    return settings


def check_a_finished_run(root: Path, folder: Path, stopped_at: int = 0) -> None:
    """stopped_at: its last step before it was stopped; 0 = it was not."""
    assert [line["step"] for line in read_lines(folder / "steps.jsonl")] == list(
        range(1, STEPS + 1)
    )
    evaluated = [line["step"] for line in read_lines(folder / "evaluations.jsonl")]
    # A stop while the weights of EVERY are judged loses that evaluation; those it goes on with are
    # judged instead.
    assert sorted(set(evaluated)) in ([0, EVERY, STEPS], [0, max(EVERY, stopped_at), STEPS])
    assert evaluated[-1] == STEPS
    check_every_task_once(read_lines(folder / "tasks.jsonl"))
    with closing(sqlite3.connect(folder / "forecasts.sqlite")) as forecasts:
        (seen,) = forecasts.execute("SELECT MAX(step) FROM evaluations").fetchone()
    assert seen == STEPS, "the forecaster saw the last evaluation"
    result = json.loads((folder / "result.json").read_text())
    assert result["num_evaluations"] == len(set(evaluated))
    assert f"the end: pass rate {result['measured']:.3f}" in read_output(root)
    if result["frozen"] is not None:  # its moment is a few seconds long here
        assert 0.5 * STEPS <= result["frozen"]["step"] <= 0.6 * STEPS
    assert (folder / "model" / "model.safetensors").exists()
