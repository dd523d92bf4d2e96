"""An interpreter in which no client of OpenEnv runs.

Real servers and clients: test_real_openenv.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rollcast.environments.base import EnvironmentFailedError
from tests.environments.openenv_run import CLOSED_PORT, environments


async def test_an_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    async with environments(CLOSED_PORT, tmp_path / "python") as made:
        with pytest.raises(
            EnvironmentFailedError, match=r"cannot be started .*; name the Python"
        ) as failed:
            await made.acquire("echo")
    assert str(tmp_path / "python") in str(failed.value)


async def test_an_interpreter_without_openenv() -> None:
    async with environments(CLOSED_PORT, Path(sys.executable)) as made:
        with pytest.raises(
            EnvironmentFailedError, match=r"cannot import openenv .*; install openenv"
        ):
            await made.acquire("echo")
