"""The generator's end of one environment's process."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import Opening, ToolResult
from rollcast.environments.process_connection import ProcessConnection
from rollcast.environments.python_processes.answers import (
    check_number,
    get_flag,
    get_metrics,
    get_opening,
    get_reason,
    get_reward,
    get_tool_result,
)

T = TypeVar("T")


class PythonEnvironment(ProcessConnection):
    """A LiveEnvironment in a process of its own. The fork server ends the process when the
    connection closes.
    """

    process = "its process"
    after_deadline = "could not be interrupted after"

    def __init__(
        self,
        settings: ClassEnvironment | ToolSet,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        gives_call_rewards: bool,
        gives_metrics: bool,
    ) -> None:
        super().__init__(reader, writer)
        self._settings = settings
        self._gives_call_rewards = gives_call_rewards
        self._gives_metrics = gives_metrics
        self._num_requests = 0

    @property
    def is_gone(self) -> bool:
        """Whether it cannot serve another episode."""
        return self.has_failed or self._reader.at_eof()

    async def begin(self) -> None:
        """Wait until its process takes requests. Raises EnvironmentFailedError."""
        # Deadline for a new process to take requests, on a busy machine
        await self._exchange("its start", 120.0, lambda answer: self._parse(answer, lambda _: None))

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Begin an episode. Raises EnvironmentFailedError."""
        seconds = self._settings.reset_seconds
        opening = await self._ask({"do": "reset", "row": dict(row)}, seconds, get_opening)
        if opening is None:
            raise self._mark_failed(f"reset took longer than {seconds:g} s")
        return opening

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool.

        Raises EnvironmentFailedError if the process died, or cannot be interrupted at the deadline.
        """
        seconds = self._settings.call_seconds
        request = {"do": "call", "tool": tool, "arguments": dict(arguments)}
        result = await self._ask(
            request,
            seconds,
            lambda answer: get_tool_result(answer, gives_rewards=self._gives_call_rewards),
        )
        if result is None:
            return ToolResult(
                f"Error: {tool} took longer than {seconds:g} s and was interrupted", is_overdue=True
            )
        return result

    async def reward(self) -> float | None:
        """The result of `get_reward`; None = the class has no such method.

        Raises EnvironmentFailedError.
        """
        seconds = self._settings.call_seconds
        rewards = await self._ask({"do": "reward"}, seconds, lambda answer: [get_reward(answer)])
        if rewards is None:
            raise self._mark_failed(f"get_reward took longer than {seconds:g} s")
        return rewards[0]

    async def metrics(self) -> Mapping[str, Any]:
        """The result of `get_metrics`; empty without such a method.

        Raises EnvironmentFailedError.
        """
        if not self._gives_metrics:
            return {}
        seconds = self._settings.call_seconds
        metrics = await self._ask({"do": "metrics"}, seconds, get_metrics)
        if metrics is None:
            raise self._mark_failed(f"get_metrics took longer than {seconds:g} s")
        return metrics

    async def _ask(
        self, request: dict[str, Any], seconds: float, parse: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        """The answer, checked; None = the process interrupted it at its deadline."""
        self._num_requests += 1
        message = {**request, "seconds": seconds, "number": self._num_requests}
        return await self._exchange(
            request["do"], seconds, lambda answer: self._parse(answer, parse), message
        )

    def _parse(
        self, answer: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        self._raise_if_failed(answer)
        return None if get_flag(answer, "overdue") else parse(answer)

    def _raise_if_failed(self, answer: Mapping[str, Any]) -> None:
        """Raises EnvironmentFailedError, FrameError."""
        if (end_reason := get_reason(answer, "ended")) is not None:
            raise self._mark_failed(end_reason, is_overdue=get_flag(answer, "overdue"))
        check_number(answer, self._num_requests)
        if (reason := get_reason(answer, "failed")) is not None:
            raise self._mark_failed(reason)
