"""Tools that run what the model wrote: it can end their process, and gets an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.of_run import EnvironmentsOfRun
from rollcast.tasks.sandbox.protections import missing

CONTAINED = pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {' and '.join(missing())}")


@asynccontextmanager
async def opened(settings: ToolSet) -> AsyncIterator[LiveEnvironment]:
    environments = EnvironmentsOfRun([settings])
    environment = await environments.acquire(settings.name)
    try:
        await environment.reset({})
        yield environment
        await environments.release(environment, is_reusable=True)
    finally:
        await environments.close()


@CONTAINED
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\nos._exit(0)", "its process ended during call"),
        ("import ctypes\nctypes.string_at(0)", "its process ended during call"),
        ("bytearray(1 << 40)", "MemoryError"),
        ("while True:\n    pass", "took longer than 1 s"),
        ("while True:\n    try:\n        1\n    except BaseException:\n        pass", "Error: "),
        ("sum(range(10**13))", "Error: "),
    ],
)
async def test_a_program_that_ends_its_process_or_has_no_end_is_answered(code: str, said: str) -> None:
    async with opened(ToolSet(name="mine", tools=("python",), call_seconds=1.0)) as environment:
        assert said in (await environment.call("python", {"code": code})).text
        assert (await environment.call("python", {"code": "6 * 7"})).text == "42"


@CONTAINED
async def test_a_command_that_starts_too_many_processes_is_answered() -> None:
    async with opened(ToolSet(name="mine", tools=("shell",), profile="folder", call_seconds=60.0)) as environment:
        bomb = "for i in $(seq 200); do sleep 600 & done; wait"
        assert "processes, and 64 are allowed" in (await environment.call("shell", {"command": bomb})).text
        assert (await environment.call("shell", {"command": "echo here"})).text == "here"


@CONTAINED
async def test_a_function_of_the_users_own_that_ends_its_process_has_failed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text('import os\ndef leave() -> str:\n    """Leave."""\n    os._exit(0)\n')
    async with opened(ToolSet(name="mine", tools=("python", f"{tmp_path}/own.py:leave"))) as environment:
        with pytest.raises(EnvironmentFailedError, match="its process ended during call"):
            await environment.call("leave", {})
