"""The environment of one episode with tools and nothing else: each call stands alone, and the
verifier rewards.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment, Opening, ToolResult
from rollcast.environments.tools.answers import cut
from rollcast.environments.tools.functions import program_tools
from rollcast.environments.tools.mcp_servers import McpServers

Replace = Callable[[LiveEnvironment], Awaitable[LiveEnvironment]]
"""Ends the process of functions and gives a new one in its place. Raises EnvironmentFailedError."""


class ToolSetEnvironment(LiveEnvironment):
    """Functions answer in their process, MCP servers over their connections.

    Processes that ended after they ran what the model wrote are replaced, and the call is answered:
    were that a failure of the environment, a model could leave every episode that it is about to
    lose.
    """

    def __init__(
        self,
        settings: ToolSet,
        functions: LiveEnvironment | None,
        servers: McpServers | None,
        replace_process: Replace | None = None,
    ) -> None:
        """functions: None = the set has no function. servers: None = it has no MCP server; shared
        by the episodes. replace_process: None = the end of the functions' process is a failure
        always."""
        self._settings = settings
        self.functions = functions
        self._servers = servers
        self._replace_process = replace_process
        self._programs = program_tools(settings.tools)
        self._has_run_programs = False

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Every tool of the set. Functions get nothing of the row, which may hold the answer; a
        container gets its image.

        Raises EnvironmentFailedError.
        """
        self._has_run_programs = False
        image = {"image": row["image"]} if "image" in row else {}
        functions_row = image if self._settings.profile == "container" else {}
        opening = (
            Opening(tools=())
            if self.functions is None
            else await self.functions.reset(functions_row)
        )
        if self._servers is None:
            return opening
        return replace(opening, tools=(*opening.tools, *await self._servers.schemas()))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; its answer is cut to the settings' length. Raises EnvironmentFailedError."""
        if self._servers is not None and self._servers.offers(tool):
            result = await self._servers.call(tool, arguments)
        elif self.functions is not None:
            result = await self._call_function(self.functions, tool, arguments)
        else:
            result = ToolResult(f"Error: there is no tool {tool}", is_malformed=True)
        longest = self._settings.answer_characters
        is_cut = result.is_cut or len(result.text) > longest
        # Without a reward: the verifier alone rewards such an episode.
        return replace(result, text=cut(result.text, longest), is_cut=is_cut, reward=None)

    async def _call_function(
        self, functions: LiveEnvironment, tool: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        self._has_run_programs |= tool in self._programs
        try:
            return await functions.call(tool, arguments)
        except EnvironmentFailedError as error:
            if not self._has_run_programs or self._replace_process is None:
                raise
            end_error = error
        self.functions = await self._replace_process(functions)
        await self.functions.reset({})
        error_message = (
            f"Error: {end_error}; the next call begins in a new process, without files of earlier "
            "calls"
        )
        return ToolResult(error_message, is_overdue=end_error.is_overdue)
