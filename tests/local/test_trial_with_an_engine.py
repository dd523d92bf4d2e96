"""A trial with a real engine and the trainer's real ranks: what it says, and whose mistakes stop it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.local import trial as trials
from rollcast.runfolder.records import TrialRecord, TriedCompletion
from testkit.forked_programs import ForkedPrograms
from testkit.system import command
from testkit.tiny_model import make_tiny_model
from testkit.uncompiled import UNCOMPILED
from tests.cli.mistakes import lines

STEP = 400
"""Prompts of a step that is never made: so many that what its update would take is no zero when it is rounded."""


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_trial_samples_from_the_models_folder_grades_with_ones_own_function_and_times_an_update_on_all_ranks(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    make_tiny_model(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text(lines(*({"prompt": f"{n} + 1 =", "answer": str(n)} for n in range(2 * STEP))))
    (tmp_path / "reward.py").write_text("def grade(completion, row):\n    return float(len(completion) % 2)\n")
    settings = {
        "run": "tried",
        "model": {"path": "model", "dtype": "float32", "max_length": 64},
        "tasks": {
            "dataset": {"kind": "jsonl", "name": "rows", "path": "rows.jsonl", "verifier": "./reward.py:grade"},
            "evaluation": {"num_prompts": 2},
        },
        "recipe": {"prompts_per_step": STEP, "rollouts_per_prompt": 4, "max_prompt_tokens": 32,
                   "max_completion_tokens": 8, "length_control": {"kind": "none"}},
        "generator": {"slots": 16, "block_size": 32, "cpu_kv_cache_gib": 1},
        "trainer": {"threads": 1},
        "local": {"trainer_ranks": 2},
        "budget": {"steps": 10, "device_hours": 1000.0},
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    arguments = ("try", "--config", "run.yaml", "--prompts", "2")
    with command.rollcast(tmp_path, *arguments, programs=programs, environment={UNCOMPILED: "1"}) as trial:
        assert trial.wait(300) == 0, command.read_output(tmp_path)
    said = command.read_output(tmp_path).splitlines()
    assert sum(line.startswith("prompt: ") for line in said) == 2
    assert sum(line.startswith("    rewards of all 4: ") for line in said) == 2
    assert any(line.startswith("speed: ") and line.endswith("with 8 concurrent completions") for line in said)
    (step,) = [line for line in said if line.startswith(f"a step ({STEP} x 4 completions): about ")]
    found = re.search(r"; generation takes [\d.]+ (?:s|min), the trainer ([\d.]+) (?:s|min), side by side$", step)
    assert found is not None, step
    assert float(found[1]) > 0.0
    budget = "the budget of 1000 device-hours, enough for 10 steps on 3 devices: about "
    assert any(line.startswith(budget) for line in said), "two ranks and a generator"
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_a_mistake_of_the_users_in_either_program_stays_one(tmp_path: Path) -> None:
    """Each rank of two makes it, joined with the other as those of a run are."""
    make_tiny_model(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    settings = {"run": "r", "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 64},
                "recipe": {"max_prompt_tokens": 16, "max_completion_tokens": 32, "length_control": {"kind": "none"}},
                "generator": {"cpu": 100_000}, "trainer": {"threads": 1}, "local": {"trainer_ranks": 2},
                "budget": {"steps": 1}}  # fmt: skip
    mistaken = parse_run_config(settings, source="test")
    with pytest.raises(UserError, match=r"generator\.cpu = 100000: this process may run on"):
        trials.try_out(mistaken, 1)
    tried = TrialRecord(1.0, 1.0, 0.0, (TriedCompletion("p", "t", 9, 20, False, 1.0, "ok"),) * 4)
    with pytest.raises(UserError, match=r"model\.path"):
        trials.time_update(mistaken, tried)
