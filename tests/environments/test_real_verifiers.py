"""A proof: tasksets of verifiers in a virtual environment of their own.

Rollouts are in tests/generator/endpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rollcast.environments.verifiers.__main__ import main
from rollcast.environments.verifiers.looking import find_missing_dependency
from testkit.verifiers_tasksets import installed_tasksets
from tests.environments.verifiers_run import run_file, settings, why_it_does_not_start

pytestmark = pytest.mark.timeout(1_200)
"""The first test may wait for the install."""


@pytest.fixture(scope="session")
def interpreter() -> Path:
    """Python of a virtual environment with verifiers and the tasksets that its `vf-init` wrote."""
    return installed_tasksets()


def test_the_tasks_of_a_taskset_are_a_data_set(
    interpreter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_file(tmp_path, interpreter, arguments={"taskset": {"num_tasks": 3}})
    assert main([file, "world"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["task"]["idx"] for row in rows] == [0, 1, 2]
    assert rows[0]["prompt"] == [{"role": "user", "content": "what is in the room?"}]
    assert {row["environment"] for row in rows} == {"world"}


def test_a_taskset_that_is_not_installed(interpreter: Path) -> None:
    assert find_missing_dependency(settings(interpreter)) is None
    assert find_missing_dependency(settings(interpreter, "gym-of-nobody")) == (
        "has no taskset 'gym-of-nobody'; install the package gym_of_nobody there, or correct "
        "taskset"
    )


async def test_arguments_that_verifiers_refuses(interpreter: Path) -> None:
    said = await why_it_does_not_start(interpreter, arguments={"agents": 3}, reset_seconds=300)
    assert "cannot load taskset 'agents' (ValidationError: " in said
    assert os.fspath(interpreter) in said
