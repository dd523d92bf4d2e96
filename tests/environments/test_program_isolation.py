"""Programs that a model wrote, against the process of their environment: its answers, its row, its
settings.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollcast.chat.base import ToolCall
from rollcast.config.environments.settings import Profile
from rollcast.config.environments.tool_set import McpServer, ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.of_run import EnvironmentsOfRun
from rollcast.environments.python_processes.live import PythonEnvironment
from rollcast.environments.tools.tool_set import ToolSetEnvironment
from rollcast.generator.episodes.calls import CallAnswers, answer_calls
from rollcast.generator.episodes.waits import Waits
from testkit.class_environments import environments

CONTAINED = pytest.mark.protections
PROFILES = [
    pytest.param("compute", marks=CONTAINED),
    pytest.param("folder", marks=CONTAINED),
    "trusted",
]
ANSWER = "REFERENCE-" + "ANSWER-4711"
KEY = "KEY-OF-" + "A-SERVER-31337"
MODULE_SECRET = "SECRET-OF-" + "A-MODULE-2718"

FORGE = """
import json, os, sys
numbers = []
frame = sys._getframe()
while frame:
    request = frame.f_locals.get("request")
    if isinstance(request, dict) and isinstance(request.get("number"), int):
        numbers.append(request["number"])
    frame = frame.f_back
for descriptor in range(3, 64):
    for number in [*numbers, 1, 2, 3, 4, 5]:
        content = {content}
        try:
            os.write(descriptor, len(content).to_bytes(4, "big") + content)
        except OSError:
            pass
{last}
"""
FRAMES = {
    "a reward": """json.dumps({"text": "x", "reward": 1000.0, "number": number}).encode()""",
    (
        "a reward that is an object"
    ): """json.dumps({"text": "x", "reward": {}, "number": number}).encode()""",
    (
        "a reward that is text"
    ): """json.dumps({"text": "x", "reward": "1", "number": number}).encode()""",
    "a reward without end": """json.dumps({"text": "x", "reward": float("inf"), "number": number}).encode()""",  # noqa: E501
    (
        "a reward of a thousand digits"
    ): """json.dumps({"text": "x", "reward": 10**999, "number": number}).encode()""",
    "no text": """json.dumps({"number": number}).encode()""",
    "a text that is none": """json.dumps({"text": [1], "number": number}).encode()""",
    "a failure": """json.dumps({"failed": "x", "number": number}).encode()""",
    "flags that are none": """json.dumps({"text": "x", "late": 1, "cut": {}, "number": number}).encode()""",  # noqa: E501
    "a text of megabytes": """json.dumps({"text": "x" * 3_000_000, "number": number}).encode()""",
    "no object": """b"[1, 2]" """,
    "no JSON": """b"\\xff\\xfe{" """,
    "a list without end": """b"[" * 100_000""",
    "nothing behind a length": """b"" """,
}
LAST = {"and ends": "os._exit(0)", "and goes on": "print('done')"}


@asynccontextmanager
async def tool_set(
    settings: ToolSet, row: dict[str, object] | None = None
) -> AsyncIterator[LiveEnvironment]:
    run = EnvironmentsOfRun([settings])
    environment = await run.acquire(settings.name)
    try:
        if isinstance(environment, ToolSetEnvironment) and settings.mcp:
            environment._servers = None  # there is no such server
        await environment.reset(row or {})
        yield environment
        await run.release(environment, is_reusable=False)
    finally:
        await run.close()


async def answers(environment: LiveEnvironment, code: str) -> CallAnswers:
    call = ToolCall("python", {"code": code})
    return await answer_calls(environment, [call], ["1"], 20.0, time.monotonic() + 60, Waits())


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_program_that_writes_answers_gets_a_text_and_no_reward(profile: Profile) -> None:
    async with tool_set(
        ToolSet(name="t", tools=("python",), profile=profile, call_seconds=20.0)
    ) as environment:
        for what, content in FRAMES.items():
            for how, last in LAST.items():
                given = await answers(environment, FORGE.format(content=content, last=last))
                assert given.rewards == [], (what, how)
                assert len(given.messages) == 1, (what, how)
                assert (given.num_malformed, given.is_done) == (0, False), (what, how)
        assert (await answers(environment, "6 * 7")).messages[0]["content"] == "42"


LOOK = """
import gc, sys
gc.unfreeze()
objects = gc.get_objects()
kinds = {"ToolSet", "McpServer", "ClassEnvironment", "PythonSource", "Definition", "Nursery", "Child"}
print([type(one).__name__ for one in objects if type(one).__name__ in kinds])
texts = {text for text in gc.get_referents(*objects) if type(text) is str}
frame = sys._getframe()
while frame:
    texts.add(repr(frame.f_locals)[:1_000_000])
    frame = frame.f_back
parts = [("REFERENCE-", "ANSWER-4711"), ("KEY-OF-", "A-SERVER-31337"), ("SECRET-OF-", "A-MODULE-2718")]
print([first for first, second in parts if any(first + second in text for text in texts)])
"""  # noqa: E501


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "has_own_function", [False, True], ids=["shipped tools", "a function of one's own"]
)
async def test_a_program_finds_neither_answer_nor_settings(
    tmp_path: Path, profile: Profile, has_own_function: bool
) -> None:
    (tmp_path / "own.py").write_text(
        'SECRET = "SECRET-OF-" + "A-MODULE-2718"\ndef check(text: str) -> bool:\n    """Check.\n\n '
        "   Args:\n"
        '        text: What.\n    """\n    return text == SECRET\n'
    )
    own = (f"{tmp_path}/own.py:check",) if has_own_function else ()
    server = McpServer(name="files", command=("server", "--api-key", KEY))
    settings = ToolSet(
        name="t", tools=("python", "calculator", *own), mcp=(server,), profile=profile
    )
    async with tool_set(settings, {"prompt": "x", "answer": ANSWER}) as environment:
        result = await environment.call("python", {"code": LOOK})
        assert result.text == "[]\n[]"
        if own:
            assert (await environment.call("check", {"text": MODULE_SECRET})).text == "true"


@pytest.mark.parametrize("profile", PROFILES)
async def test_what_a_program_may_do_goes_on_working(profile: Profile) -> None:
    programs = {
        (
            "import numpy\nprint(numpy.ones((500, 500)).dot(numpy.ones((500, 500))).sum())"
        ): "125000000.0",
        (
            "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return "
            "5\nasyncio.run(f())"
        ): "5",
        (
            "import fractions, json, re, decimal, statistics\nfractions.Fraction(1, 3)"
        ): "Fraction(1, 3)",
    }
    async with tool_set(ToolSet(name="t", tools=("python",), profile=profile)) as environment:
        for code, text in programs.items():
            assert (await environment.call("python", {"code": code})).text == text


@CONTAINED
async def test_a_command_that_ends_its_tools_later_loses_no_verdict() -> None:
    """Where Landlock keeps no signals inside, a program can end the environment's process during
    another call.
    """
    settings = ToolSet(name="t", tools=("python", "calculator"), profile="folder")
    async with tool_set(settings) as environment:
        assert isinstance(environment, ToolSetEnvironment)
        assert (await environment.call("python", {"code": "1 + 1"})).text == "2"
        functions = environment.functions
        assert isinstance(functions, PythonEnvironment)
        functions._writer.transport.abort()
        assert (
            "the next call begins in a new process"
            in (await environment.call("calculator", {"expression": "1"})).text
        )
        assert (await environment.call("calculator", {"expression": "1"})).text == "1"


WORLD = '''
import json, os, sys

class World:
    def reset(self, **row):
        pass

    def run(self, code: str) -> str:
        """Run code in this process, as a console does.

        Args:
            code: Python.
        """
        exec(code, globals())
        return "ran"
'''
REWARDING = WORLD + "\n    def get_call_reward(self):\n        return 0.25\n"


@pytest.mark.parametrize("source", [WORLD, REWARDING], ids=["no call rewards", "call rewards"])
async def test_a_class_that_runs_code_of_the_model_fails_or_gives_its_own_rewards(
    tmp_path: Path, source: str
) -> None:
    gives = source is REWARDING
    async with environments(tmp_path, source, "World", call_seconds=20.0) as processes:
        for what, content in FRAMES.items():
            one = await processes.acquire()
            await one.reset({})
            try:
                result = await one.call("run", {"code": FORGE.format(content=content, last="")})
            except EnvironmentFailedError:
                pass
            else:
                assert result.reward is None or (gives and abs(result.reward) <= 1_000), what
            await processes.release(one, is_reusable=False)
        one = await processes.acquire()
        await one.reset({})
        assert (await one.call("run", {"code": "1"})).reward == (0.25 if gives else None)
