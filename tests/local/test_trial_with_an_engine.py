"""A trial with a real engine and the trainer's real ranks: what it says, and whose mistakes stop
it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.local import trial as trials
from rollcast.runfolder.trial_records import TrialRecord, TriedCompletion
from testkit.chat_tokenizers import make_tiny_chat_model
from testkit.forked_programs import ForkedPrograms
from testkit.system import command
from testkit.tiny_model import make_tiny_model
from testkit.uncompiled import UNCOMPILED
from tests.cli.mistakes import lines

STEP = 400
"""Prompts of a step that is never made: so many that what its update would take is no zero when it
is rounded."""


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_trial_samples_grades_with_an_own_function_and_times_an_update_on_all_ranks(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    make_tiny_model(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text(
        lines(*({"prompt": f"{n} + 1 =", "answer": str(n)} for n in range(2 * STEP)))
    )
    (tmp_path / "reward.py").write_text(
        "def grade(completion, row):\n    return float(len(completion) % 2)\n"
    )
    settings = {
        "run": "tried",
        "model": {"path": "model", "dtype": "float32", "max_length": 64},
        "tasks": {
            "dataset": {"kind": "jsonl", "name": "rows", "path": "rows.jsonl",
                "verifier": "./reward.py:grade"},
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
    with command.rollcast(
        tmp_path, *arguments, programs=programs, environment={UNCOMPILED: "1"}
    ) as trial:
        assert trial.wait(300) == 0, command.read_output(tmp_path)
    said = command.read_output(tmp_path).splitlines()
    assert sum(line.startswith("prompt: ") for line in said) == 2
    assert sum(line.startswith("    rewards of all 4: ") for line in said) == 2
    assert any(
        line.startswith("speed: ") and line.endswith("with 8 concurrent completions")
        for line in said
    )
    (step,) = [line for line in said if line.startswith(f"a step ({STEP} x 4 completions): about ")]
    found = re.search(
        r"; generation takes [\d.]+ (?:s|min), the trainer ([\d.]+) (?:s|min), side by side$", step
    )
    assert found is not None, step
    assert float(found[1]) > 0.0
    budget = "the budget of 1000 device-hours, enough for 10 steps on 3 devices: about "
    assert any(line.startswith(budget) for line in said), "two ranks and a generator"
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


WORLD = """
class World:
    def reset(self, **row):
        return None

    def look(self) -> str:
        \"\"\"Look around.\"\"\"
        return "a door"

    def get_reward(self) -> float:
        return -0.5
"""
AGENT = """
import json, os, sys, urllib.request

def post(url, body):
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

row = json.load(sys.stdin)
messages = [{"role": "user", "content": row["prompt"]}]
for _ in range(2):
    body = {"model": os.environ["ROLLCAST_MODEL"], "messages": messages, "max_tokens": 8}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]
    messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "go on"}]
post(os.environ["ROLLCAST_REWARD_URL"], {"reward": 0.75})
"""  # noqa: E501


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_episodes_of_each_environment_are_played_and_shown_turn_by_turn(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    make_tiny_chat_model(tmp_path / "model", "qwen3")
    rows = ({"prompt": f"room {n}", "environment": ("world", "agent")[n % 2]} for n in range(8))
    (tmp_path / "rows.jsonl").write_text(lines(*rows))
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "agent.py").write_text(AGENT)
    settings = {
        "run": "tried",
        "model": {"path": "model", "dtype": "float32", "max_length": 512},
        "tasks": {
            "environments": [
                {"kind": "class", "name": "world", "code": "./world.py:World", "profile": "trusted",
                 "reward_range": [-1, 1]},
                {"kind": "harness", "name": "agent", "command": [sys.executable, "agent.py"]},
            ],
            "dataset": {"kind": "jsonl", "name": "rows", "path": "rows.jsonl"},
            "evaluation": {"num_prompts": 2},
        },
        "recipe": {"prompts_per_step": 2, "rollouts_per_prompt": 2, "max_prompt_tokens": 64,
                   "max_completion_tokens": 120, "length_control": {"kind": "none"}},
        "generator": {"slots": 16, "block_size": 32, "cpu_kv_cache_gib": 1},
        "trainer": {"threads": 1},
        "budget": {"steps": 2},
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    with command.rollcast(
        tmp_path, "try", "--config", "run.yaml", programs=programs, environment={UNCOMPILED: "1"}
    ) as trial:
        assert trial.wait(300) == 0, command.read_output(tmp_path)
    said = command.read_output(tmp_path).splitlines()
    worlds = [line for line in said if line.startswith("episode in world: ")]
    assert len(worlds) == 2
    assert all(line.endswith("reward 0.25") for line in worlds), "-0.5 of -1 to 1"
    agents = [line for line in said if line.startswith("episode in agent: ")]
    assert len(agents) == 2
    assert all("2 turns" in line and line.endswith("reward 0.75") for line in agents)
    assert sum(line.startswith("    model: ") for line in said) >= 6
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_a_mistake_of_the_users_in_either_program_stays_one(tmp_path: Path) -> None:
    """Each rank of two makes it, joined with the other as those of a run are."""
    make_tiny_model(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    settings = {"run": "r",
        "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 64},
        "recipe": {"max_prompt_tokens": 16, "max_completion_tokens": 32,
            "length_control": {"kind": "none"}},
        "generator": {"cpu": 100_000}, "trainer": {"threads": 1}, "local": {"trainer_ranks": 2},
        "budget": {"steps": 1}}  # fmt: skip
    mistaken = parse_run_config(settings, source="test")
    with pytest.raises(UserError, match=r"generator\.cpu = 100000: this process may run on"):
        trials.try_out(mistaken, 1)
    tried = TrialRecord(1.0, 1.0, 0.0, (TriedCompletion("p", "t", 9, 20, False, 1.0, "ok"),) * 4)
    with pytest.raises(UserError, match=r"model\.path"):
        trials.time_update(mistaken, tried)
