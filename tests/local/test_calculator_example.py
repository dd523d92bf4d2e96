"""The calculator of `examples/`: its tasks, tokenizer, class and run file belong together."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from rollcast.chat.make import make_renderer
from rollcast.chat.template import ChatTokenizer
from rollcast.config.run import load_run_config
from rollcast.tasks.tokens import load_tokenizer
from tests.cli import command

EXAMPLE = Path(__file__).parents[2] / "examples" / "calculator"
NUM_TASKS = 50
NUM_STEPS = 40
"""The schedule of the learning rate needs some."""
SHORTER = f"import make_model; make_model.NUM_STEPS = {NUM_STEPS}; make_model.BATCH = 1; make_model.main()"
"""`python make_model.py` with less training."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("reader") / "calculator"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-c", SHORTER], cwd=copy, check=True, timeout=120, capture_output=True)
    return copy


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_its_run_file_is_right_and_turns_of_its_model_extend_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    checked = command.rollcast("config", "check", "run.yaml")
    assert checked.returncode == 0, checked.stderr
    run = load_run_config(folder / "run.yaml")
    assert make_renderer(run.model, cast(ChatTokenizer, load_tokenizer(run.model))).stop_token_ids


def test_right_calls_earn_the_reward_and_no_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model = module(folder / "make_model.py")
    monkeypatch.setattr(make_model, "NOISE", 0.0)
    world = module(folder / "world.py").Calculator()
    rows = {row["prompt"]: row for row in map(json.loads, (folder / "tasks.jsonl").read_text().splitlines())}
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
