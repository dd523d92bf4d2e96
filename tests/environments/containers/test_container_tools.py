"""Tools in a container of the episode, with a real podman and as pods: what the model can do there,
and what it cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.kinds.kind import Surroundings, find_kind
from rollcast.environments.kinds.tool_set import ToolSets
from rollcast.environments.tools.tool_set import ToolSetEnvironment
from testkit.containers import IMAGE, START_SECONDS
from tests.environments.engines_under_test import EngineUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="module")


def tool_set(engine: EngineUnderTest, call_seconds: float = 20.0, **container: Any) -> ToolSet:
    return ToolSet(
        name="box",
        tools=("shell", "python"),
        profile="container",
        container=ContainerSettings.model_validate(engine.settings | container),
        call_seconds=call_seconds,
        reset_seconds=START_SECONDS,
    )


class Box:
    """Environments of one set."""

    def __init__(self, settings: ToolSet) -> None:
        self.sets: ToolSets = find_kind(settings).start(settings, Surroundings())

    async def begin(self, row: dict[str, Any] | None = None) -> ToolSetEnvironment:
        environment = await self.sets.acquire()
        await environment.reset(row or {})
        return environment

    async def end(self, environment: ToolSetEnvironment) -> None:
        await self.sets.release(environment, is_reusable=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(engine: EngineUnderTest) -> AsyncIterator[Box]:
    made = Box(tool_set(engine))
    yield made
    await made.sets.close()


async def shell(environment: ToolSetEnvironment, command: str) -> str:
    return (await environment.call("shell", {"command": command})).text


async def test_files_stay_in_an_episode_and_never_reach_another(box: Box) -> None:
    first = await box.begin()
    second = await box.begin()
    assert await shell(first, "echo 1 > /tmp/note; cat /tmp/note") == "1"
    assert await shell(first, "cat /tmp/note; exit 3") == "1\n[exit code 3]"
    assert "No such file" in await shell(second, "cat /tmp/note")
    await box.end(first)
    await box.end(second)
    third = await box.begin()
    assert "No such file" in await shell(third, "cat /tmp/note")
    await box.end(third)


async def test_what_a_call_leaves_running_is_ended_with_it(box: Box) -> None:
    environment = await box.begin()
    await shell(environment, "sleep 1000 > /dev/null 2>&1 & echo started")
    assert "sleep 100" not in await shell(environment, "ps")
    await box.end(environment)


async def test_a_container_reaches_no_network_and_keeps_few_rights(box: Box) -> None:
    environment = await box.begin()
    interfaces = await shell(environment, "cut -d: -f1 -s /proc/net/dev")
    assert interfaces.split() == ["lo"]
    rights = await shell(environment, "grep -E 'CapEff|NoNewPrivs' /proc/self/status")
    assert rights.split() == ["NoNewPrivs:", "1", "CapEff:", "00000000000000fb"] or (
        rights.split() == ["CapEff:", "00000000000000fb", "NoNewPrivs:", "1"]
    )
    await box.end(environment)


async def test_processes_without_end_end_with_their_call(box: Box) -> None:
    environment = await box.begin()
    assert "can't fork" in await shell(environment, "b() { b | b & }; b; sleep 1")
    assert await shell(environment, "echo after") == "after"
    await box.end(environment)


async def test_memory_is_limited(box: Box) -> None:
    environment = await box.begin()
    text = await shell(environment, "x=a; while true; do x=$x$x; done")
    assert "exit code" in text or "Error" in text
    assert await shell(environment, "echo after") == "after"
    await box.end(environment)


async def test_a_command_that_ends_everything_ends_only_its_call(box: Box) -> None:
    environment = await box.begin()
    await shell(environment, "echo 1 > /tmp/note; kill -9 -1")
    assert await shell(environment, "cat /tmp/note") == "1"
    await box.end(environment)


async def test_a_call_ends_at_its_deadline_with_its_output(engine: EngineUnderTest) -> None:
    box = Box(tool_set(engine, call_seconds=3.0))
    try:
        environment = await box.begin()
        result = await environment.call("shell", {"command": "echo begun; sleep 100"})
        assert result.is_overdue
        assert result.text == "begun\n[ended: the command took more than 2.7 s]"
        assert "sleep 100" not in await shell(environment, "ps")
        await box.end(environment)
    finally:
        await box.sets.close()


NAMELESS = (
    "exec 8> /tmp/one 9> /tmp/two; rm /tmp/one /tmp/two; "
    "dd if=/dev/zero bs=1048576 count=20 >&8; dd if=/dev/zero bs=1048576 count=20 >&9; sleep 15"
)


@pytest.mark.parametrize(
    "command", ["dd if=/dev/zero of=/tmp/big bs=1048576 count=48; sleep 15", NAMELESS]
)
async def test_too_many_bytes_end_the_container_and_the_call_is_answered(
    command: str, box: Box, engine: EngineUnderTest
) -> None:
    if command == NAMELESS and engine.name == "kubernetes":
        pytest.skip("a kubelet does not see files without a name")
    environment = await box.begin()
    text = await shell(environment, command)
    assert "its files took more than the 32 MiB" in text
    assert "new container" in text
    assert "No such file" in await shell(environment, "ls /tmp/big")
    await box.end(environment)


async def test_a_shell_that_the_model_replaced_ends_the_container_and_not_the_episode(
    engine: EngineUnderTest,
) -> None:
    box = Box(tool_set(engine, call_seconds=5.0))
    try:
        environment = await box.begin()
        await shell(environment, "echo '#!/bin/busybox sh' > /tmp/s; echo 'sleep 99' >> /tmp/s")
        await shell(environment, "chmod +x /tmp/s; busybox mv /tmp/s /bin/sh")
        text = await shell(environment, "echo never")
        assert "its programs could not be ended; the next call begins in a new container" in text
        assert await shell(environment, "echo after") == "after"
        await box.end(environment)
    finally:
        await box.sets.close()


async def test_output_without_end_is_cut(box: Box) -> None:
    environment = await box.begin()
    result = await environment.call("shell", {"command": "yes | head -c 3000000"})
    assert result.is_cut
    assert "characters were cut" in result.text
    await box.end(environment)


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("browser", {}, "there is no tool browser"),
        ("shell", {}, "takes one parameter, command, a text"),
        ("shell", {"command": 3}, "takes one parameter, command, a text"),
        ("shell", {"command": "ls", "more": 1}, "takes one parameter, command, a text"),
        ("shell", {"command": "a\0b"}, "Error"),
        ("shell", {"command": "a\ud800b"}, "Error"),
        ("shell", {"command": "x" * 300_000}, "Error"),
    ],
)
async def test_a_mistake_of_the_model_is_an_answer(
    box: Box, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    environment = await box.begin()
    assert sentence in (await environment.call(tool, arguments)).text
    assert await shell(environment, "echo after") == "after"
    await box.end(environment)


async def test_a_row_names_its_image(engine: EngineUnderTest) -> None:
    box = Box(tool_set(engine, image=None))
    try:
        environment = await box.begin({"image": IMAGE, "answer": "secret"})
        assert await shell(environment, "echo here") == "here"
        assert "secret" not in await shell(environment, "cat /proc/1/environ")
        await box.end(environment)
        with pytest.raises(EnvironmentFailedError, match="no field `image`"):
            await box.begin({})
        with pytest.raises(EnvironmentFailedError, match="is no text"):
            await box.begin({"image": 3})
        with pytest.raises(EnvironmentFailedError, match="localhost/not-there"):
            await box.begin({"image": "localhost/not-there:1"})
        with pytest.raises(EnvironmentFailedError, match="no name of an image"):
            await box.begin({"image": "--privileged"})
    finally:
        await box.sets.close()


async def test_warm_containers_serve_one_episode_each_and_none_is_left(
    engine: EngineUnderTest,
) -> None:
    before = engine.names()
    box = Box(tool_set(engine, warm=2))
    try:
        assert await asyncio.to_thread(engine.wait_for_new, before, 2)
        environments = await asyncio.gather(*(box.begin() for _ in range(3)))
        names = await asyncio.gather(
            *(shell(environment, "cat /proc/sys/kernel/hostname") for environment in environments)
        )
        assert len(set(names)) == 3
        await box.end(environments[0])
    finally:
        await box.sets.close()
    assert await asyncio.to_thread(engine.wait_for_new, before, 0)
