"""The shipped tools `shell` and `python` in a container of the episode.

A container that the model's programs spoiled is ended and the call is answered; the next call
starts another. Were that a failure of the environment, a model could leave every episode that it
is about to lose.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import (
    EnvironmentFailedError,
    LiveEnvironment,
    Opening,
    ToolResult,
    ToolSchema,
)
from rollcast.environments.containers.container import END_ALL, Container
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pool import ContainerPool
from rollcast.environments.tools.answers import command_answer

RUN_AND_END_ALL = f'"$@"; code=$?; {END_ALL}; exit $code'
"""Runs its arguments as a command, and then ends all processes that are left."""
CONTAINER_TOOLS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "shell": (
        "command",
        "Run a command in a shell. Its files are there in the next call; processes that still run "
        "are ended.",
        ("/bin/sh", "-c"),
    ),
    "python": (
        "code",
        "Run a Python program. Its files are there in the next call; its variables are not.",
        ("python3", "-c"),
    ),
}
"""Name of the parameter, description and program of each tool."""


def container_tool_schemas(names: tuple[str, ...]) -> tuple[ToolSchema, ...]:
    """The tools of a set in the order of its settings."""
    schemas = []
    for name in names:
        parameter, description, _ = CONTAINER_TOOLS[name]
        parameters = {
            "type": "object",
            "properties": {
                parameter: {"type": "string", "description": f"The {parameter} to run."}
            },
            "required": [parameter],
        }
        function = {"name": name, "description": description, "parameters": parameters}
        schemas.append({"type": "function", "function": function})
    return tuple(schemas)


class ContainerTools(LiveEnvironment):
    """The functions of a set of tools, in containers of a pool. The verifier of the data set
    rewards.
    """

    def __init__(self, settings: ToolSet, pool: ContainerPool) -> None:
        self._settings = settings
        self._pool = pool
        self._image: str | None = None
        self._container: Container | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Start the episode's container. Raises EnvironmentFailedError."""
        image = row.get("image")
        if image is not None and not isinstance(image, str):
            raise EnvironmentFailedError("its row's field `image` is no text")
        await self.end()
        self._image = None if self._settings.container_settings.image else image
        self._container = await self._pool.acquire(self._image)
        return Opening(tools=container_tool_schemas(self._settings.tools))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a command or a program. Raises EnvironmentFailedError if no container starts."""
        if tool not in self._settings.tools:
            return ToolResult(f"Error: there is no tool {tool}", is_malformed=True)
        parameter, _, program = CONTAINER_TOOLS[tool]
        code = arguments.get(parameter)
        if not isinstance(code, str) or len(arguments) != 1:
            return ToolResult(
                f"Error: {tool} takes one parameter, {parameter}, a text", is_malformed=True
            )
        # Linux starts no program with an argument of over 128 KiB
        encoded = code.encode("utf-8", "replace")
        if "\0" in code or len(encoded) > 100_000 or encoded.decode() != code:
            return ToolResult(
                f"Error: {parameter} has a NUL, half of a character, or more than 100,000 bytes"
            )
        # A command may take this part of a call's deadline. Then it is ended, and the answer still
        # has its output.
        seconds = self._settings.call_seconds * 0.9
        command = ["/bin/sh", "-c", RUN_AND_END_ALL, "sh", *program, code]
        if self._container is None:
            self._container = await self._pool.acquire(self._image)
        try:
            output = await self._container.run(command, seconds)
        except SpoiledError as error:
            self._end_in_background()
            return ToolResult(
                f"Error: {error}; the next call begins in a new container, without files of "
                "earlier calls"
            )
        except ContainerError as error:
            raise EnvironmentFailedError(f"its container: {error}") from error
        overdue_seconds = seconds if output.is_overdue else None
        text = command_answer(output.text, output.code, overdue_seconds)
        return ToolResult(text, is_overdue=output.is_overdue)

    async def end(self) -> None:
        """End the container."""
        self._end_in_background()
        await asyncio.gather(*self._ending)

    def _end_in_background(self) -> None:
        container = self._container
        self._container = None
        if container is not None:
            ending = asyncio.create_task(self._pool.release(container))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
