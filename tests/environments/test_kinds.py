"""Each kind of environment is two modules of one name: its settings, and what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollcast.config.environments.found import environment_classes
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.environments.kinds.kind import find_kind


@pytest.mark.parametrize("settings", environment_classes(), ids=lambda settings: settings.__name__)
def test_every_kind_of_settings_has_its_module(settings: type[EnvironmentSettings]) -> None:
    kind = find_kind(settings.model_construct(name="e"))
    assert callable(kind.missing)
    assert callable(kind.start)


DICE = """
from typing import Literal

from rollcast.config.environments.settings import EnvironmentSettings


class DiceEnvironment(EnvironmentSettings):
    kind: Literal["dice"] = "dice"
"""
CHECK = """
import sys

import rollcast.config.environments

rollcast.config.environments.__path__.append(sys.argv.pop(1))
from rollcast.cli.main import main

main()
"""
"""`rollcast` of a checkout whose config/environments has another module."""


@pytest.mark.parametrize("options", [[], ["--elsewhere"]], ids=["here", "elsewhere"])
def test_config_check_names_the_module_that_a_kind_of_settings_alone_lacks(
    options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "dice.py").write_text(DICE)
    dataset = {"kind": "jsonl", "name": "rolls", "path": "rolls.jsonl", "environment": "cubes"}
    environment = {"kind": "dice", "name": "cubes", "reward": "environment"}
    run = {
        "run": "r",
        "budget": {"steps": 1},
        "model": {"path": "ours/dice"},
        "tasks": {"dataset": dataset, "environments": [environment]},
    }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(run))
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(tmp_path / "kinds"), "config", "check", file, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert (
        "tasks.environments: cubes has settings of a kind without code; write "
        "services/rollcast/environments/kinds/dice.py with `missing` and `start`"
    ) in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_alone_are_refused_with_the_file_that_is_not_there() -> None:
    class Dice(EnvironmentSettings):
        """As a module config/environments/dice.py would have it."""

    Dice.__module__ = "rollcast.config.environments.dice"
    with pytest.raises(
        UserError, match=r"cubes has .* write services/rollcast/environments/kinds/dice\.py with"
    ):
        find_kind(Dice(name="cubes"))
