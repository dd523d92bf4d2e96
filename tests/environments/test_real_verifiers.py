"""A proof: tasksets of verifiers in a virtual environment of their own.

Rollouts are in tests/generator/endpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rollcast.environments.kinds.verifiers import missing
from rollcast.environments.verifiers.__main__ import main
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


def test_so_many_tasks_of_a_taskset_by_a_seed(
    interpreter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def numbers(file: str, *options: str) -> list[int]:
        assert main([file, "world", *options]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [row["task"]["idx"] for row in rows]

    endless = run_file(tmp_path, interpreter, taskset="endless")
    assert main([endless, "world"]) == 1
    assert "the taskset has no end; give the number of tasks as --tasks" in capsys.readouterr().err
    assert numbers(endless, "--tasks", "3") == [0, 1, 2]
    assert numbers(endless, "--tasks", "3", "--seed", "2") == [6, 7, 8]
    bounded = run_file(tmp_path, interpreter, arguments={"taskset": {"num_tasks": 50}})
    drawn = numbers(bounded, "--tasks", "5", "--seed", "1")
    assert len(set(drawn)) == 5
    assert drawn != sorted(drawn)
    assert numbers(bounded, "--tasks", "5", "--seed", "1") == drawn
    assert numbers(bounded, "--tasks", "5", "--seed", "2") != drawn


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_wrong_number_of_tasks(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run.yaml", "world", "--tasks", wrong])
    assert ended.value.code == 2
    assert "--tasks" in capsys.readouterr().err


async def test_seats_run_here_and_never_in_a_cloud(
    interpreter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seat of a simulated user has a harness of its own, and a cloud by verifiers' default."""
    two_seats = {"id": "user-sim", "taskset": {"num_tasks": 2}}
    assert main([run_file(tmp_path, interpreter, arguments=two_seats), "world"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    said = await why_it_does_not_start(
        interpreter, arguments={"agent": {"runtime": {"type": "prime"}}}, reset_seconds=300
    )
    assert "seat agent runs in the cloud prime; set arguments.agent.runtime to" in said


def test_a_taskset_that_is_not_installed(interpreter: Path) -> None:
    assert list(missing(settings(interpreter), "environment")) == []
    assert list(missing(settings(interpreter, "gym-of-nobody"), "environment")) == [
        f"environment.interpreter = {interpreter}: has no taskset 'gym-of-nobody'; install the "
        "package gym_of_nobody there, or correct taskset"
    ]


async def test_arguments_that_verifiers_refuses(interpreter: Path) -> None:
    said = await why_it_does_not_start(interpreter, arguments={"agents": 3}, reset_seconds=300)
    assert "cannot load taskset 'agents' (ValidationError: " in said
    assert os.fspath(interpreter) in said
