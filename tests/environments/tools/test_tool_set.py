"""Tools that run what the model wrote: it can end their process, and gets an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.of_run import EnvironmentsOfRun

CONTAINED = pytest.mark.protections


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
    ("code", "said", "is_overdue"),
    [
        ("import os\nos._exit(0)", "its process ended during call", False),
        ("import ctypes\nctypes.string_at(0)", "its process ended during call", False),
        ("bytearray(1 << 40)", "MemoryError", False),
        ("while True:\n    pass", "took longer than 1 s", True),
        (
            "while True:\n    try:\n        1\n    except BaseException:\n        pass",
            "Error: ",
            True,
        ),
        ("sum(range(10**13))", "Error: ", True),
    ],
)
async def test_a_program_that_ends_its_process_or_has_no_end_is_answered(
    code: str, said: str, is_overdue: bool
) -> None:
    async with opened(ToolSet(name="mine", tools=("python",), call_seconds=1.0)) as environment:
        result = await environment.call("python", {"code": code})
        assert said in result.text
        assert result.is_overdue is is_overdue
        assert (await environment.call("python", {"code": "6 * 7"})).text == "42"


@CONTAINED
async def test_a_command_that_starts_too_many_processes_is_answered() -> None:
    async with opened(
        ToolSet(name="mine", tools=("shell",), profile="folder", call_seconds=60.0)
    ) as environment:
        bomb = "for i in $(seq 200); do sleep 600 & done; wait"
        assert (
            "processes, and 64 are allowed"
            in (await environment.call("shell", {"command": bomb})).text
        )
        assert (await environment.call("shell", {"command": "echo here"})).text == "here"


@CONTAINED
async def test_a_command_beyond_its_deadline_and_an_answer_beyond_its_length_are_marked() -> None:
    settings = ToolSet(
        name="mine", tools=("shell",), profile="folder", call_seconds=5.0, answer_characters=100
    )
    async with opened(settings) as environment:
        late = await environment.call("shell", {"command": "echo begun; sleep 600"})
        assert late.text.startswith("begun\n[ended: the command took more than")
        assert (late.is_overdue, late.is_cut) == (True, False)
        long = await environment.call("shell", {"command": "seq 100"})
        assert (long.is_overdue, long.is_cut) == (False, True)


@CONTAINED
async def test_a_function_of_the_users_own_that_ends_its_process_has_failed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        'import os\ndef leave() -> str:\n    """Leave."""\n    os._exit(0)\n'
    )
    async with opened(
        ToolSet(name="mine", tools=("python", f"{tmp_path}/own.py:leave"))
    ) as environment:
        with pytest.raises(EnvironmentFailedError, match="its process ended during call"):
            await environment.call("leave", {})
