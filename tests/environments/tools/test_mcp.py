"""MCP servers that are real processes: right answers, and servers that hang, die, or answer without
end.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from rollcast.config.environments.tool_set import McpServer, ToolSet
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.tools.mcp_relay import MAX_LINE_BYTES
from rollcast.environments.tools.mcp_servers import McpServers
from rollcast.environments.tools.tool_set import ToolSetEnvironment
from rollcast.local.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[3]
COMMAND = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "testkit.mcp_server")
START_SECONDS = 60.0


@asynccontextmanager
async def started(*servers: McpServer, call_seconds: float = 30.0) -> AsyncIterator[McpServers]:
    made = McpServers(servers, START_SECONDS, call_seconds)
    try:
        yield made
    finally:
        await made.close()


STDIO = McpServer(name="t", command=COMMAND)


async def gone(process_id: int) -> None:
    """Its end is not waited for by the code: a relay ends it.

    Where nobody buries it, it is a zombie.
    """
    deadline = time.monotonic() + 60.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(process_id)
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the server lives on"
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[McpServers]:
    """One server, which each test leaves as ready as it was; the last test ends it."""
    async with started(STDIO) as made:
        yield made


async def test_its_tools_are_offered_and_called(servers: McpServers) -> None:
    environment = ToolSetEnvironment(ToolSet(name="e", mcp=(STDIO,)), None, servers)
    schemas = {schema["function"]["name"]: schema for schema in (await environment.reset({})).tools}
    assert {"t_add", "t_files_read", "t_large"} <= schemas.keys()
    assert schemas["t_add"]["type"] == "function"
    assert schemas["t_add"]["function"]["description"] == "Add two numbers."
    assert set(schemas["t_add"]["function"]["parameters"]["properties"]) == {"a", "b"}
    assert (await environment.call("t_add", {"a": 2, "b": 40})).text == "42"
    together = await asyncio.gather(
        *(environment.call("t_add", {"a": n, "b": n}) for n in range(20))
    )
    assert [result.text for result in together] == [str(2 * n) for n in range(20)]
    assert await environment.reward() is None


async def test_a_mistake_of_the_model_is_an_answer(servers: McpServers) -> None:
    environment = ToolSetEnvironment(ToolSet(name="e", mcp=(STDIO,)), None, servers)
    await environment.reset({})
    for tool, arguments in (("t_add", {"a": "x"}), ("t_files_read", {"path": "/none"})):
        assert (await environment.call(tool, arguments)).text.startswith("Error: ")
    unknown = await environment.call("t_none", {})
    assert unknown.is_malformed
    assert (await environment.call("t_add", {"a": 1, "b": 1})).text == "2"


async def test_a_long_answer_is_cut_and_one_without_end_is_refused(servers: McpServers) -> None:
    environment = ToolSetEnvironment(
        ToolSet(name="e", mcp=(STDIO,), answer_characters=1_000), None, servers
    )
    await environment.reset({})
    long = await environment.call("t_large", {"num_bytes": 50_000})
    assert long.is_cut
    assert len(long.text) < 1_100
    assert "49000 characters were cut" in long.text
    before = (await environment.call("t_process_id", {})).text
    huge, small = await asyncio.gather(
        environment.call("t_large", {"num_bytes": 10 << 20}),
        environment.call("t_add", {"a": 1, "b": 2}),
    )
    assert f"more than the {MAX_LINE_BYTES} that are read" in huge.text
    assert small.text == "3"
    assert (await environment.call("t_process_id", {})).text == before, (
        "the server was not to blame"
    )


async def test_a_call_that_takes_too_long_is_answered_and_a_server_that_hangs_is_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with started(STDIO, call_seconds=1.0) as hasty:
        await hasty.schemas()
        before = (await hasty.call("t_process_id", {})).text
        late = await hasty.call("t_sleep", {"seconds": 60})
        assert "did not answer within 1 s" in late.text
        assert late.is_overdue
        assert (await hasty.call("t_process_id", {})).text == before, "the server serves on"
        monkeypatch.setattr("rollcast.environments.tools.mcp_connection.LIVENESS_SECONDS", 0.5)
        assert "did not answer within 1 s" in (await hasty.call("t_hang", {"seconds": 600})).text
        assert (await hasty.call("t_process_id", {})).text != before
        await gone(int(before))


async def test_a_server_that_dies_fails_the_environment_and_is_started_again(
    servers: McpServers,
) -> None:
    await servers.schemas()
    with pytest.raises(EnvironmentFailedError, match="MCP server t: it ended during a call of die"):
        await servers.call("t_die", {})
    assert (await servers.call("t_add", {"a": 1, "b": 2})).text == "3"


async def test_it_ends_with_its_connection(servers: McpServers) -> None:
    await servers.schemas()
    server = int((await servers.call("t_process_id", {})).text)
    await servers.close()
    await gone(server)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/program",), "MCP server t: it cannot be reached"),
        ((sys.executable, "-c", "print('hello')"), "MCP server t: it cannot be reached"),
        (
            (
                sys.executable,
                "-c",
                "import sys; print('first', file=sys.stderr); raise KeyError('no API_KEY')",
            ),
            "MCP server t: it cannot be reached .*; it wrote: first .*KeyError: 'no API_KEY'",
        ),
        (
            (sys.executable, "-c", "import time; time.sleep(600)"),
            "MCP server t: it was not ready within 1 s",
        ),
        (
            (
                sys.executable,
                "-c",
                "import sys, time; print('wait', file=sys.stderr, flush=True); time.sleep(600)",
            ),
            "MCP server t: it was not ready within 3 s; it wrote: wait",
        ),
    ],
)
async def test_a_server_that_does_not_start_is_named(command: tuple[str, ...], said: str) -> None:
    start_seconds = (
        (3.0 if "wait" in command[-1] else 1.0) if "600" in command[-1] else START_SECONDS
    )
    servers = McpServers([McpServer(name="t", command=command)], start_seconds, 5.0)
    try:
        with pytest.raises(EnvironmentFailedError, match=said):
            await servers.schemas()
    finally:
        await servers.close()


@contextmanager
def listening(*options: str, token: str = "") -> Iterator[str]:
    """The address of a server that speaks HTTP."""
    port = free_port("127.0.0.1")
    command = [
        COMMAND[0],
        f"TESTKIT_MCP_TOKEN={token}",
        *COMMAND[1:],
        "--http",
        str(port),
        *options,
    ]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not any(
            one.laddr.port == port for one in psutil.Process(process.pid).net_connections()
        ):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=[(), ("--json",)], ids=["events", "json"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with listening(*request.param) as found:
        yield found


async def test_the_token_of_a_variable_is_presented(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server itself refuses a wrong one and none; no sentence contains the token."""
    monkeypatch.setenv("RIGHT", " t0p-secret\n")
    monkeypatch.setenv("WRONG", "t0p-other")
    with listening(token="t0p-secret") as url:
        async with started(McpServer(name="w", url=url, token_variable="RIGHT")) as servers:
            await servers.schemas()
            assert (await servers.call("w_add", {"a": 2, "b": 40})).text == "42"
        for variable, said in (
            (
                "WRONG",
                r"it cannot be reached \(.*it answers with status 401: let token_variable name",
            ),
            (None, r"it cannot be reached \(.*it answers with status 401: let token_variable name"),
            ("NOT_SET", "the environment variable NOT_SET, which is to hold its token, is not set"),
        ):
            async with started(McpServer(name="w", url=url, token_variable=variable)) as servers:
                with pytest.raises(EnvironmentFailedError, match=f"MCP server w: {said}") as failed:
                    await servers.schemas()
            assert "t0p" not in str(failed.value)


async def test_a_server_behind_an_address(address: str) -> None:
    async with started(McpServer(name="w", url=address), call_seconds=20.0) as servers:
        assert any(schema["function"]["name"] == "w_add" for schema in await servers.schemas())
        assert (await servers.call("w_add", {"a": 2, "b": 40})).text == "42"
        assert (await servers.call("w_large", {"num_bytes": 10 << 20})).text.startswith("Error: ")
        assert (await servers.call("w_add", {"a": 3, "b": 40})).text == "43"
        with pytest.raises(EnvironmentFailedError, match="MCP server w: "):
            await servers.call("w_die", {})


async def test_an_address_where_nothing_listens_is_named() -> None:
    servers = McpServers(
        [McpServer(name="w", url=f"http://127.0.0.1:{free_port('127.0.0.1')}/mcp")], 10.0, 5.0
    )
    with pytest.raises(EnvironmentFailedError, match="MCP server w: it cannot be reached"):
        await servers.schemas()
    await servers.close()
