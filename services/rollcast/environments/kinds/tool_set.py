"""Tools without an environment around them: functions in processes of this machine or in
containers, and MCP servers.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.function_loading import is_function
from rollcast.connections.bearer import NoTokenError, bearer_headers
from rollcast.environments.containers.engines import find_engine, missing_for_containers
from rollcast.environments.containers.pool import ContainerPool
from rollcast.environments.containers.tools import ContainerTools
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import (
    is_readable,
    missing_function,
    missing_package,
    missing_program,
)
from rollcast.environments.python_processes.live import PythonEnvironment
from rollcast.environments.python_processes.processes import EnvironmentProcesses
from rollcast.environments.tools.mcp_servers import McpServers
from rollcast.environments.tools.tool_set import ToolSetEnvironment


def missing(settings: ToolSet, field: str) -> Iterator[str]:
    for index, source in enumerate(settings.tools):
        if is_function(source):
            yield from missing_function(f"{field}.tools.{index}", source)
    if "search" in settings.tools:
        yield from missing_package(f"{field}.tools", "the tool search", "bm25s")
    if settings.corpus is not None and not is_readable(settings.corpus):
        yield (
            f"{field}.corpus = {settings.corpus}: cannot be read; give a JSONL file with a field "
            "`text` in each line"
        )
    if settings.profile == "container":
        yield from missing_for_containers(
            settings.container_settings, settings.name, f"{field}.container"
        )
    if settings.mcp:
        yield from missing_package(f"{field}.mcp", "an MCP server", "mcp")
    for index, server in enumerate(settings.mcp):
        if server.command is not None:
            yield from missing_program(f"{field}.mcp.{index}.command", server.command[0])
        try:
            bearer_headers(server.token_variable)
        except NoTokenError as error:
            yield f"{field}.mcp.{index}.token_variable: {error}; export it where the run is started"


def missing_in_rows(
    settings: ToolSet, field: str, rows: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """Sentences on images that rows name; each is pulled if it is not there."""
    if settings.profile != "container" or settings.container_settings.image is not None:
        return
    images: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        image = row.get("image")
        if not isinstance(image, str):
            yield f"{field}: row {number} of its data set has no field image; name one in each row"
            return
        images.setdefault(image, f"{field}: row {number}: image")
    engine = find_engine(settings.container_settings, settings.name)
    yield from engine.missing_images(images, f"{field}.container")


def start(settings: ToolSet, surroundings: Surroundings) -> "ToolSets":
    return ToolSets(settings, surroundings)


class ToolSets:
    """Environments of one set. They share its MCP servers."""

    def __init__(self, settings: ToolSet, surroundings: Surroundings) -> None:
        self._settings = settings
        is_contained = settings.profile == "container"
        self._containers: ContainerPool | None = None
        self._cleaning: asyncio.Future[int] | None = None
        if settings.tools and is_contained:
            container = settings.container_settings
            engine = find_engine(container, settings.name)
            loop = asyncio.get_running_loop()
            self._cleaning = loop.run_in_executor(None, engine.remove_abandoned)
            self._containers = ContainerPool(engine, container, settings.reset_seconds)
        self._processes = (
            EnvironmentProcesses(settings, surroundings.on_replaced)
            if settings.tools and not is_contained
            else None
        )
        self._servers = (
            McpServers(settings.mcp, settings.reset_seconds, settings.call_seconds)
            if settings.mcp
            else None
        )

    async def acquire(self) -> ToolSetEnvironment:
        """Raises EnvironmentFailedError."""
        if self._containers is not None:
            tools = ContainerTools(self._settings, self._containers)
            return ToolSetEnvironment(self._settings, tools, self._servers)
        if self._processes is None:
            return ToolSetEnvironment(self._settings, None, self._servers)
        functions = await self._processes.acquire()
        return ToolSetEnvironment(self._settings, functions, self._servers, self._processes.replace)

    async def release(self, environment: ToolSetEnvironment, *, is_reusable: bool) -> None:
        if isinstance(environment.functions, ContainerTools):
            await environment.functions.end()
        if self._processes is not None and isinstance(environment.functions, PythonEnvironment):
            await self._processes.release(environment.functions, is_reusable=is_reusable)

    async def close(self) -> None:
        if self._servers is not None:
            await self._servers.close()
        if self._processes is not None:
            await self._processes.close()
        if self._containers is not None:
            await self._containers.close()
        if self._cleaning is not None:
            await self._cleaning
