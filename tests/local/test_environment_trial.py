"""Mistakes of a world are said before a run is started: each world is made and reset once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.local.checks.environment_trial import try_environments
from rollcast.tasks.prompt import Prompt

WORLDS = '''
import time

class Right:
    def reset(self, room, **row):
        assert room == 3

    def look(self) -> str:
        """Look around."""
        return "a door"

    def get_reward(self):
        return 0.5

class NoDocstring(Right):
    def walk(self, steps: int) -> str:
        return "a wall"

class NoType(Right):
    def walk(self, steps):
        """Walk.

        Args:
            steps: how many
        """
        return "a wall"

class WantsAnArgument(Right):
    def __init__(self, size):
        self.size = size

class WantsAnotherField(Right):
    def reset(self, door):
        pass

class Raises(Right):
    def reset(self, **row):
        raise RuntimeError("no room")

class Hangs(Right):
    def reset(self, **row):
        time.sleep(600)

class NoTool:
    def reset(self, **row):
        pass

    def get_reward(self):
        return 0.5
'''


def tried(folder: Path, *worlds: str, **settings: Any) -> list[str]:
    (folder / "worlds.py").write_text(WORLDS)
    environments = [
        {
            "kind": "class",
            "name": name.lower(),
            "code": f"{folder}/worlds.py:{name}",
            "profile": "trusted",
            **settings,
        }
        for name in worlds
    ]
    config = parse_run_config(
        {"run": "r", "model": {"path": "m"}, "tasks": {"environments": environments}}, source="test"
    )
    rows = [(name.lower(), {"room": 3}) for name in worlds] + [
        (name.lower(), {"room": 4}) for name in worlds
    ]
    prompts = [
        Prompt(str(number), "d", "where am i?", json.dumps(row), "", environment=name)
        for number, (name, row) in enumerate(rows)
    ]
    return try_environments(config.tasks, prompts)


def test_a_right_world_is_made_and_reset_with_its_first_row(tmp_path: Path) -> None:
    assert tried(tmp_path, "Right") == []


def test_a_world_without_a_tool_is_a_caution(tmp_path: Path) -> None:
    (caution,) = tried(tmp_path, "NoTool")
    assert caution.startswith("environment notool: offers no tool for its first row")


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        ("NoDocstring", "docstring"),
        ("NoType", "type hint"),
        ("WantsAnArgument", "size"),
        ("WantsAnotherField", "door"),
        ("Raises", "RuntimeError: no room"),
    ],
)
def test_a_mistake_of_a_world_is_a_sentence_with_its_name(
    world: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"^environment {world.lower()}: .*{sentence}") as error:
        tried(tmp_path, world)
    assert "\n" not in str(error.value)


def test_a_world_that_hangs_takes_its_deadline_and_every_mistake_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        tried(tmp_path, "Hangs", "Raises", reset_seconds=6.0)
    hangs, raises = str(error.value).splitlines()
    assert hangs.startswith("environment hangs: ")
    assert raises.startswith("environment raises: ")
