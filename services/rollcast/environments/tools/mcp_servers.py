"""The MCP servers of one set of tools, shared by all episodes of a generator."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rollcast.config.environments.tool_set import McpServer
from rollcast.environments.base import EnvironmentFailedError, ToolResult, ToolSchema
from rollcast.environments.tools.mcp_connection import McpConnection

if TYPE_CHECKING:
    from mcp_types import Tool

_NOT_IN_A_NAME = re.compile(r"[^\w-]")


class McpServers:
    """Connects when an episode first asks for the tools. Every wait has a deadline."""

    def __init__(
        self, servers: Sequence[McpServer], start_seconds: float, call_seconds: float
    ) -> None:
        """Imports the official client, which the extra `tools` brings."""
        self._connections = {
            server.name: McpConnection(server, start_seconds, call_seconds) for server in servers
        }
        self._tools: dict[str, tuple[McpConnection, str]] = {}
        self._schemas: list[ToolSchema] | None = None
        self._lock = asyncio.Lock()

    async def schemas(self) -> list[ToolSchema]:
        """The tools of all servers, as they were when first asked for: a run's prompts do not
        change.

        Raises EnvironmentFailedError for a server that cannot be reached, and for tools of equal
        names.
        """
        async with self._lock:
            if self._schemas is None:
                names = list(self._connections)
                listed = await asyncio.gather(*(self._connections[name].tools() for name in names))
                named_tools = [
                    (name, tool)
                    for name, tools in zip(names, listed, strict=True)
                    for tool in tools
                ]
                self._tools = {}
                self._schemas = [self._add(name, tool) for name, tool in named_tools]
            return self._schemas

    def offers(self, tool: str) -> bool:
        return tool in self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool that is offered. Raises EnvironmentFailedError."""
        connection, its_name = self._tools[tool]
        return await connection.call(its_name, arguments)

    async def close(self) -> None:
        """End all connections, and the servers that were started."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    def _add(self, server: str, tool: "Tool") -> ToolSchema:
        name = _NOT_IN_A_NAME.sub("_", f"{server}_{tool.name}")
        if name in self._tools:
            raise EnvironmentFailedError(
                f"MCP server {server}: two tools are called {name}; give the servers other names"
            )
        self._tools[name] = (self._connections[server], tool.name)
        function = {
            "name": name,
            "description": tool.description or "",
            "parameters": tool.input_schema,
        }
        return {"type": "function", "function": function}
