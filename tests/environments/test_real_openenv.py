"""A proof: servers of OpenEnv, unchanged, reached by OpenEnv's own client from a virtual
environment of its own.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollcast.environments.base import EnvironmentFailedError
from rollcast.local.ports import free_port
from testkit.openenv_sessions import installed_openenv
from tests.environments.openenv_run import CLOSED_PORT, environments

pytestmark = pytest.mark.timeout(1_200)
"""The first test may wait for the install."""
START_SECONDS = 120.0

TOOLS_SERVER = '''
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Adding(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("adding")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **row):
        return Observation(done=False, reward=None, metadata=row)

    def _step_impl(self, action, timeout_s=None, **kwargs):
        raise ValueError("only tools")

    def step(self, action, timeout_s=None, **kwargs):
        observation = super().step(action, timeout_s=timeout_s, **kwargs)
        observation.done = getattr(action, "arguments", {}).get("a") == 40
        observation.reward = 7.0 if observation.done else None
        return observation

    async def step_async(self, action, timeout_s=None, **kwargs):
        observation = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        observation.done = getattr(action, "arguments", {}).get("a") == 40
        observation.reward = 7.0 if observation.done else None
        return observation

    @property
    def state(self):
        return State(episode_id="one", step_count=0)


app = create_app(Adding, CallToolAction, CallToolObservation, env_name="adding")
'''


@pytest.fixture(scope="session")
def interpreter() -> Path:
    """Python of a virtual environment in which openenv is installed."""
    return installed_openenv()


Server = tuple[str, "subprocess.Popen[bytes]"]
Serve = Callable[[str, Path], Server]


@pytest.fixture
def serve(interpreter: Path) -> Iterator[Serve]:
    """Starts an application of a folder with uvicorn; returns its address and process."""
    started: list[subprocess.Popen[bytes]] = []

    def start(application: str, folder: Path) -> Server:
        port = free_port("127.0.0.1")
        command = [
            str(interpreter),
            "-m",
            "uvicorn",
            application,
            "--port",
            str(port),
            "--log-level",
            "error",
        ]
        process = subprocess.Popen(command, cwd=folder)
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        wait_until_it_answers(url, process)
        return url, process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("the server did not start")


@pytest.fixture(scope="session")
def written(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `openenv init` writes."""
    folder = tmp_path_factory.mktemp("openenv")
    program = interpreter.with_name("openenv")
    subprocess.run(
        [program, "init", "echo_world"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=START_SECONDS,
    )
    return folder / "echo_world"


@pytest.fixture
def echo(serve: Serve, written: Path) -> Server:
    return serve("server.app:app", written)


async def test_an_episode_on_the_server_that_init_writes(echo: Server, interpreter: Path) -> None:
    async with environments(echo[0], interpreter) as made:
        environment = await made.acquire("echo")
        opening = await environment.reset({"seed": 3, "question": "not an argument of reset"})
        assert [tool["function"]["name"] for tool in opening.tools] == ["step"]
        parameters = opening.tools[0]["function"]["parameters"]
        assert set(parameters["properties"]) == {"message"}
        assert parameters["required"] == ["message"]
        assert opening.text is not None
        assert "environment ready!" in opening.text
        assert await environment.reward() == 0.0

        first = await environment.call("step", {"message": "four"})
        assert first.text == '{"echoed_message": "four", "message_length": 4}'
        assert first.reward == pytest.approx(0.4)
        assert not first.is_done
        for tool, arguments in (
            ("step", {"massage": "x"}),
            ("step", {}),
            ("jump", {"message": "x"}),
        ):
            mistake = await environment.call(tool, arguments)
            assert mistake.is_malformed
            assert mistake.text.startswith("Error: ")
        await environment.call("step", {"message": "seventy"})
        assert await environment.reward() == pytest.approx(0.7), "the last reward counts"
        await made.release(environment, is_reusable=True)


async def test_episodes_wait_for_a_server_whose_sessions_are_in_use(
    echo: Server, interpreter: Path
) -> None:
    """The server that `openenv init` writes has a single session."""
    async with environments(echo[0], interpreter) as made:
        first = await made.acquire("echo")
        await first.reset({})
        second = await made.acquire("echo")
        waiting = asyncio.create_task(second.reset({}))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        await first.call("step", {"message": "mine"})
        await made.release(first, is_reusable=True)
        assert (await waiting).tools
        await made.release(second, is_reusable=False)
        third = await made.acquire("echo")
        assert third is first
        assert (await third.reset({})).tools
        assert await third.reward() == 0.0, "nothing of the episode before is left"


async def test_a_server_that_is_killed_in_the_middle(echo: Server, interpreter: Path) -> None:
    async with environments(echo[0], interpreter) as made:
        environment = await made.acquire("echo")
        await environment.reset({})
        echo[1].kill()
        echo[1].wait()
        with pytest.raises(EnvironmentFailedError, match="call failed"):
            await environment.call("step", {"message": "x"})
        await made.release(environment, is_reusable=True)
        again = await made.acquire("echo")
        assert again is not environment
        with pytest.raises(EnvironmentFailedError, match="no OpenEnv server describes its actions"):
            await again.reset({})


async def test_a_server_that_hangs(echo: Server, interpreter: Path) -> None:
    async with environments(echo[0], interpreter, call_seconds=1.0) as made:
        environment = await made.acquire("echo")
        await environment.reset({})
        echo[1].send_signal(signal.SIGSTOP)
        with pytest.raises(EnvironmentFailedError, match="call took longer than 1 s") as failed:
            await environment.call("step", {"message": "x"})
        assert failed.value.is_overdue


async def test_a_wrong_address(interpreter: Path) -> None:
    async with environments(CLOSED_PORT, interpreter) as made:
        environment = await made.acquire("echo")
        with pytest.raises(EnvironmentFailedError, match=f"{CLOSED_PORT}/schema"):
            await environment.reset({})


async def test_the_tools_of_an_mcp_environment(
    serve: Serve, interpreter: Path, tmp_path: Path
) -> None:
    (tmp_path / "adding.py").write_text(TOOLS_SERVER)
    url, _ = serve("adding:app", tmp_path)
    async with environments(url, interpreter) as made:
        environment = await made.acquire("echo")
        (tool,) = (await environment.reset({"seats": 2, "name": "hall"})).tools
        assert await environment.metrics() == {"seats": 2}, "of the metadata, the numbers"
        assert tool["function"]["name"] == "add"
        assert tool["function"]["description"] == "Add two numbers."
        assert set(tool["function"]["parameters"]["properties"]) == {"a", "b"}
        assert await environment.reward() is None
        assert (await environment.call("add", {"a": 2, "b": 3})).text == "5"
        unknown = await environment.call("subtract", {"a": 2})
        assert unknown.text.startswith("Error: ")
        last = await environment.call("add", {"a": 40, "b": 2})
        assert last.text == "42"
        assert last.is_done
        assert await environment.reward() == 7.0, "not clipped: the episode loop refuses it"
