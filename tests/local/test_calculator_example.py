"""The calculator of `examples/`: its tasks, tokenizer, class and run file belong together."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
import yaml

from rollcast.chat.make import make_renderer
from rollcast.chat.template import ChatTokenizer
from rollcast.config.run import load_run_config
from rollcast.tasks.tokens import load_tokenizer
from testkit.module_of import load_module
from tests.cli import command

EXAMPLE = Path(__file__).parents[2] / "examples" / "calculator"
NUM_TASKS = 50
NUM_STEPS = 40
"""The schedule of the learning rate needs some."""
SHORTER = (
    f"import make_model; make_model.NUM_STEPS = {NUM_STEPS}; make_model.BATCH = 1; "
    "make_model.main()"
)
"""`python make_model.py` with less training."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("reader") / "calculator"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-c", SHORTER], cwd=copy, check=True, timeout=120, capture_output=True
    )
    return copy


def test_its_run_file_is_right_and_turns_of_its_model_extend_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    checked = command.rollcast("config", "check", "run.yaml")
    assert checked.returncode == 0, checked.stderr
    run = load_run_config(folder / "run.yaml")
    assert make_renderer(run.model, cast(ChatTokenizer, load_tokenizer(run.model))).stop_token_ids


def test_right_calls_earn_the_reward_and_no_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model = load_module(folder / "make_model.py")
    monkeypatch.setattr(make_model, "NOISE", 0.0)
    world = load_module(folder / "world.py").Calculator()
    rows = {
        row["prompt"]: row
        for row in map(json.loads, (folder / "tasks.jsonl").read_text().splitlines())
    }
    draw = random.Random(make_model.SEED + 1)
    for _ in range(NUM_TASKS):
        task = make_model.draw(draw)
        world.reset(**rows[task.text()])
        assert world.get_reward() == 0
        for message in make_model.conversation(task, random.Random(0)):
            for call in message.get("tool_calls", []):
                getattr(world, call["function"]["name"])(**call["function"]["arguments"])
        assert world.get_reward() == 1
        world.add(rows[task.text()]["answer"], 1)
        assert world.get_reward() == 0


def test_the_agent_has_the_tools_of_the_class_and_its_run_the_same_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = load_module(EXAMPLE / "agent.py")
    world = load_module(EXAMPLE / "world.py").Calculator()
    for schema in agent.SCHEMAS:
        name = schema["function"]["name"]
        assert getattr(world, name).__doc__.startswith(schema["function"]["description"])
        assert agent.call_tool(name, '{"a": 7, "b": 12}') == str(getattr(world, name)(a=7, b=12))
    symbols = load_module(EXAMPLE / "make_model.py").SYMBOLS
    assert list(agent.TOOLS) == sorted(symbols), (
        "as a class's tools are listed, and as its model has seen them"
    )
    wrong = ("{", "[]", '{"a": 1}', '{"a": "x", "b": 2}', '{"a": 1e999, "b": 1}')
    assert all(agent.call_tool("add", arguments).startswith("error: ") for arguments in wrong)
    assert agent.call_tool("divide", '{"a": 1, "b": 1}') == "error: KeyError('divide')"
    own, through = [
        yaml.safe_load((EXAMPLE / name).read_text())
        for name in ("run.yaml", "through_endpoint.yaml")
    ]
    assert agent.ADDRESS.endswith(f":{through['generator'].pop('http_port')}")
    assert through["tasks"]["dataset"].pop("verifier") == "exact"
    assert through["tasks"]["environments"] == [
        {"kind": "harness", "name": "calculator", "reward": "verifier"}
    ]
    for settings in (own, through):
        del settings["tasks"]["environments"], settings["run"]
    assert through == own
    monkeypatch.chdir(EXAMPLE)
    run = load_run_config(EXAMPLE / "through_endpoint.yaml")
    assert run.tasks.environments[0].reward == "verifier"
