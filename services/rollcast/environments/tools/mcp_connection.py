"""One connection to an MCP server, by the official client.

    closed --- connect ---> open --- call ---> answer
       ^                      |
       '--- died, does not answer, closed by us; the next call connects again

A server that is started here (stdio) is ended with its connection. It runs with everything that you
can do.
"""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.environments.tool_set import McpServer
from rollcast.connections.bearer import NoTokenError, bearer_headers
from rollcast.environments.base import EnvironmentFailedError, ToolResult
from rollcast.environments.tools import mcp_relay
from rollcast.environments.tools.error_output import ErrorOutput
from rollcast.processes.variables import users_variables

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

MAX_TOOLS = 128
"""One server may have this many: their descriptions are part of every prompt."""
CLOSE_SECONDS = 15.0
"""Longest end of a connection; the client's own is shorter, with a server that must be killed."""
CLOSED_MESSAGE = "Connection closed"
"""The client's own error says this; servers use its code for errors of theirs too."""
LIVENESS_SECONDS = 5.0
"""After a call that exceeded its deadline a server that does not list its tools within this time is
restarted."""


class McpConnection:
    """Safe for any number of calls at the same time, in one event loop."""

    def __init__(self, server: McpServer, start_seconds: float, call_seconds: float) -> None:
        import mcp

        self._mcp = mcp
        self._server = server
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._lock = asyncio.Lock()
        """Held while a connection is opened or closed."""
        self._client: Client | None = None
        self._holder: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._error_output: ErrorOutput | None = None
        """Standard error of the newest server. None = no server was started."""

    async def tools(self) -> "list[Tool]":
        """The server's tools.

        Raises EnvironmentFailedError if it cannot be reached, or offers too many.
        """
        client = await self._ensure_client()
        try:
            async with asyncio.timeout(self._start_seconds):
                offered_tools = await self._list_tools(client)
        except Exception as error:
            await self._discard(client)
            raise self._make_error("its tools cannot be listed", error) from error
        if len(offered_tools) > MAX_TOOLS:
            raise self._make_error(
                f"it has {len(offered_tools)} tools, and at most {MAX_TOOLS} are allowed; start a "
                "server with fewer"
            )
        return offered_tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool by the server's own name for it.

        Raises EnvironmentFailedError if the server is gone: what the call did there is not known.
        """
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND

        client = await self._ensure_client()
        try:
            async with asyncio.timeout(self._call_seconds):
                result = await client.call_tool(tool, dict(arguments))
        except TimeoutError:
            await self._close_if_it_hangs(client)
            return ToolResult(
                f"Error: {tool} did not answer within {self._call_seconds:g} s", is_overdue=True
            )
        except self._mcp.MCPError as error:
            if error.code == CONNECTION_CLOSED and error.message == CLOSED_MESSAGE:
                await self._discard(client)
                raise self._make_error(f"it ended during a call of {tool}") from error
            is_malformed = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            return ToolResult(f"Error: {error.message}", is_malformed=is_malformed)
        except Exception as error:
            await self._discard(client)
            raise self._make_error(f"a call of {tool} failed", error) from error
        return ToolResult(get_result_text(result))

    async def close(self) -> None:
        """End the connection, and the server if it was started here."""
        if self._client is not None:
            await self._discard(self._client)

    async def _ensure_client(self) -> "Client":
        async with self._lock:
            if self._client is None:
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> "Client":
        """A task of its own opens and closes the client: its scopes must end in the task in which
        they began.
        """
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(opened, self._stop))
        try:
            async with asyncio.timeout(self._start_seconds):
                return await asyncio.shield(opened)
        except TimeoutError as error:
            await _end(self._holder)
            await self._wait_for_output()
            raise self._make_error(f"it was not ready within {self._start_seconds:g} s") from error
        except asyncio.CancelledError:  # the episode is given up; the server must not stay
            self._holder.cancel()
            raise
        except NoTokenError as error:
            raise self._make_error(str(error)) from error
        except Exception as error:
            await self._wait_for_output()
            raise self._make_error("it cannot be reached", error) from error

    async def _wait_for_output(self) -> None:
        """The output of a server that has ended is read some moments later."""
        if self._error_output is not None:
            await asyncio.to_thread(self._error_output.wait_for_end)

    async def _hold(self, opened: "asyncio.Future[Client]", stop: asyncio.Event) -> None:
        try:
            with ErrorOutput() as self._error_output:
                async with self._mcp.Client(
                    self._transport(self._error_output), cache=None
                ) as client:
                    if not opened.done():
                        opened.set_result(client)
                    await stop.wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)

    def _transport(self, error_output: ErrorOutput) -> "AbstractAsyncContextManager[Any]":
        if self._server.url is not None:
            from rollcast.environments.tools.mcp_http import bounded_http

            headers = bearer_headers(self._server.token_variable)
            return bounded_http(self._server.url, headers, self._call_seconds)
        assert self._server.command is not None, "a rule of the run file asks for one of the two"
        relay = [str(Path(mcp_relay.__file__).resolve()), *self._server.command]
        parameters = self._mcp.StdioServerParameters(
            command=sys.executable, args=["-I", *relay], env=users_variables()
        )
        return self._mcp.stdio_client(parameters, errlog=error_output.file)

    async def _list_tools(self, client: "Client") -> "list[Tool]":
        offered_tools: list[Tool] = []
        cursor: str | None = None
        # A server may offer a further page without end.
        for _ in range(32):
            page = await client.list_tools(cursor=cursor)
            offered_tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return offered_tools

    async def _close_if_it_hangs(self, client: "Client") -> None:
        try:
            async with asyncio.timeout(LIVENESS_SECONDS):
                await client.list_tools()
        except Exception:
            await self._discard(client)

    async def _discard(self, client: "Client") -> None:
        """Close this connection, unless another one took its place already."""
        async with self._lock:
            if self._client is not client or self._holder is None:
                return
            self._client = None
            self._stop.set()
            await _end(self._holder, patience_seconds=CLOSE_SECONDS)

    def _make_error(self, problem: str, error: Exception | None = None) -> EnvironmentFailedError:
        cause = "" if error is None else f" ({type(error).__name__}: {_first_cause(error)})"
        last_lines = "" if self._error_output is None else self._error_output.last_lines()
        wrote = f"; it wrote: {last_lines}" if last_lines else ""
        return EnvironmentFailedError(f"MCP server {self._server.name}: {problem}{cause}{wrote}")


def get_result_text(result: "CallToolResult") -> str:
    """The texts of an answer; of other content its kind."""
    parts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    text = "\n".join(parts) or "(no output)"
    return f"Error: {text}" if result.is_error else text


def _first_cause(error: BaseException) -> str:
    """The first error of a group: task groups wrap what happened."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())


async def _end(task: "asyncio.Task[None]", patience_seconds: float = 0.0) -> None:
    """Wait for a task, then cancel it and wait for that."""
    await asyncio.wait([task], timeout=patience_seconds)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CLOSE_SECONDS)
