"""One episode must not take the fork server of its environment from the others, and nothing stays
on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import LiveEnvironment
from rollcast.environments.kinds.tool_set import ToolSets
from rollcast.environments.of_run import EnvironmentsOfRun
from testkit.class_environments import eventually

CONTAINED = pytest.mark.protections
pytestmark = CONTAINED


class Run:
    """The environments of a run with one set of tools under the profile folder."""

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.replaced: list[str] = []
        settings = ToolSet(
            name="t", tools=("python", "shell"), profile="folder", call_seconds=60, reset_seconds=60
        )
        self.environments = EnvironmentsOfRun([settings], self.replaced.append)

    async def begin(self) -> LiveEnvironment:
        environment = await self.environments.acquire("t")
        await environment.reset({})
        return environment

    async def end(self, environment: LiveEnvironment) -> None:
        await self.environments.release(environment, is_reusable=False)

    @property
    def fork_server(self) -> psutil.Process:
        source = self.environments._sources["t"]
        assert isinstance(source, ToolSets)
        assert source._processes is not None
        server = source._processes._fork_server
        assert server is not None
        return psutil.Process(server.pid)

    @property
    def folders(self) -> list[Path]:
        return list(self.temporary.glob("rollcast-environments-*/environment-*"))


@asynccontextmanager
async def running(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    run = Run(temporary)
    try:
        yield run
    finally:
        await run.environments.close()


FILLS = {
    "1,500 folders inside each other": (
        "for n in range(1_500): os.mkdir('d'); os.chdir('d')",
        "inside each other",
    ),
    "130 folders with long names": (
        "for n in range(130): os.mkdir('d' * 200); os.chdir('d' * 200)",
        "inside each other",
    ),
    "too many files": (
        "os.mkdir('f'); os.chdir('f')\nopen('0', 'w').close()\nfor n in range(1, 120_000):\n    if "
        "n % 60_000 == 0:\n"
        "        os.unlink('0'); open('0', 'w').close()\n    os.link('0', str(n))",
        "more than the 100,000 files",
    ),
}


@pytest.mark.parametrize("what", FILLS)
async def test_a_full_folder_ends_its_episode_and_no_other(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, sentence = FILLS[what]
    async with running(tmp_path, monkeypatch) as run:
        other = await run.begin()
        hostile = await run.begin()
        server = run.fork_server.pid
        result = await hostile.call("python", {"code": f"import os, time\n{fill}\ntime.sleep(50)"})
        assert sentence in result.text
        assert (await hostile.call("shell", {"command": "echo here"})).text == "here"
        await run.end(hostile)
        assert (await other.call("shell", {"command": "echo here"})).text == "here"
        await run.end(other)
        await eventually(lambda: not run.folders, 120.0)
        again = await run.begin()
        assert run.fork_server.pid == server
        await run.end(again)


async def test_a_fork_server_that_hangs_is_replaced_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as run:
        await run.end(await run.begin())
        hung = run.fork_server
        hung.suspend()
        for _ in range(3):
            one = await run.begin()
            assert (await one.call("shell", {"command": "echo here"})).text == "here"
            await run.end(one)
        assert run.replaced == ["t"]
        assert run.fork_server.pid != hung.pid
        assert not hung.is_running()


async def test_connections_that_hung_up_are_not_forked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as run:
        await run.end(await run.begin())
        server = run.fork_server
        await eventually(lambda: not server.children(), 60.0)
        server.suspend()  # the queue fills
        waits = [asyncio.create_task(run.begin()) for _ in range(60)]
        await asyncio.sleep(0.5)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        server.resume()
        one = await run.begin()
        assert run.replaced == []
        begun = server.children()
        assert len(begun) == 1, "one fork for the one that waited"
        await run.end(one)


async def test_more_episodes_than_cores_begin_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as run:
        ones = await asyncio.gather(*(run.begin() for _ in range(24)))
        texts = await asyncio.gather(*(one.call("shell", {"command": "echo here"}) for one in ones))
        assert {text.text for text in texts} == {"here"}
        for one in ones:
            await run.end(one)


async def test_a_guard_that_was_stopped_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as run:
        await run.begin()
        guards = run.fork_server.children()
        processes = [
            *guards,
            *(child for guard in guards for child in guard.children(recursive=True)),
        ]
        for guard in guards:
            guard.suspend()
    await eventually(lambda: not any(process.is_running() for process in processes), 60.0)


@pytest.mark.parametrize("killed", ["fork server", "guard", "both"])
async def test_nothing_stays_of_what_was_killed(
    killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as run:
        one = await run.begin()
        folder = Path((await one.call("shell", {"command": "echo kept > file; pwd"})).text)
        assert folder.is_relative_to(tmp_path)
        assert (folder / "file").read_text() == "kept\n"
        server = run.fork_server
        guards = server.children()
        for process in [
            *(guards if killed != "fork server" else ()),
            *([server] if killed != "guard" else ()),
        ]:
            process.kill()
        if killed != "both":
            await eventually(lambda: not folder.exists(), 60.0)
        await run.end(one)
        again = await run.begin()
        assert (await again.call("shell", {"command": "echo here"})).text == "here"
        await run.end(again)
    await eventually(lambda: not list(tmp_path.iterdir()), 60.0)


GENERATOR = """
import asyncio, sys
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.of_run import EnvironmentsOfRun

async def main():
    run = EnvironmentsOfRun([ToolSet(name="t", tools=("shell",), profile="folder")])
    one = await run.acquire("t")
    await one.reset({})
    print((await one.call("shell", {"command": "pwd"})).text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def left_by_a_killed_generator(temporary: Path) -> Path:
    """The private folder of an environment that was killed with its generator, and all between
    them.
    """
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", GENERATOR], stdout=subprocess.PIPE, env=environment
    ) as first:
        assert first.stdout is not None
        folder = Path(first.stdout.readline().decode().strip())
        for process in [
            psutil.Process(first.pid),
            *psutil.Process(first.pid).children(recursive=True),
        ]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
    return folder


async def test_the_next_start_removes_what_a_killed_generator_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await asyncio.to_thread(left_by_a_killed_generator, tmp_path)
    assert folder.is_relative_to(tmp_path)
    async with running(tmp_path, monkeypatch) as run:
        await run.end(await run.begin())
        await eventually(lambda: not folder.exists(), 60.0)
