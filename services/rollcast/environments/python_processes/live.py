"""The generator's end of one environment's process."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, Opening, ToolResult
from rollcast.environments.python_processes.answers import (
    check_number,
    get_flag,
    get_metrics,
    get_opening,
    get_reason,
    get_reward,
    get_tool_result,
)
from rollcast.processes.frames import MAX_ANSWER_BYTES, FrameError, pack_message, read

T = TypeVar("T")


class PythonEnvironment:
    """A LiveEnvironment in a process of its own.

    Whatever the process sends, only EnvironmentFailedError is raised.
    """

    def __init__(
        self,
        settings: ClassEnvironment | ToolSet,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        gives_call_rewards: bool,
        gives_metrics: bool,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._gives_call_rewards = gives_call_rewards
        self._gives_metrics = gives_metrics
        self._num_requests = 0
        self.has_failed = False
        """Whether it cannot serve another episode."""

    @property
    def is_gone(self) -> bool:
        """Whether it cannot serve another episode."""
        return self.has_failed or self._reader.at_eof()

    async def begin(self) -> None:
        """Wait until its process takes requests. Raises EnvironmentFailedError."""
        # Deadline for a new process to take requests, on a busy machine
        await self._receive("its start", 120.0, lambda answer: None)

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
        result = await self._ask(request, seconds, self._get_result)
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

    async def close(self) -> None:
        """The fork server ends the process when the connection closes."""
        self.has_failed = True
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _get_result(self, answer: Mapping[str, Any]) -> ToolResult:
        return get_tool_result(answer, gives_rewards=self._gives_call_rewards)

    async def _ask(
        self, request: dict[str, Any], seconds: float, parse: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        """The answer, checked; None = the process interrupted it at its deadline."""
        self._num_requests += 1
        message = {**request, "seconds": seconds, "number": self._num_requests}
        return await self._receive(request["do"], seconds, parse, message)

    async def _receive(
        self,
        request_name: str,
        seconds: float,
        parse: Callable[[Mapping[str, Any]], T],
        message: Mapping[str, Any] | None = None,
    ) -> T | None:
        is_answered = False
        try:
            # After a deadline, the environment's process has this long to interrupt the call
            # itself, or its program
            async with asyncio.timeout(seconds + 2.0):
                if message is not None:
                    self._writer.write(pack_message(message))
                    await self._writer.drain()
                answer = await read(self._reader, MAX_ANSWER_BYTES)
            self._raise_if_failed(answer)
            result = None if get_flag(answer, "overdue") else parse(answer)
            is_answered = True
            return result
        except TimeoutError:
            raise self._mark_failed(
                f"{request_name} could not be interrupted after {seconds:g} s", is_overdue=True
            ) from None
        except (OSError, asyncio.IncompleteReadError):
            raise self._mark_failed(f"its process ended during {request_name}") from None
        except FrameError as error:
            raise self._mark_failed(f"its process sent {error}") from error
        finally:
            # After a cancelled request too: its late answer would be read in place of the next one.
            self.has_failed |= not is_answered

    def _raise_if_failed(self, answer: Mapping[str, Any]) -> None:
        """Raises EnvironmentFailedError, FrameError."""
        if (end_reason := get_reason(answer, "ended")) is not None:
            raise self._mark_failed(end_reason, is_overdue=get_flag(answer, "overdue"))
        check_number(answer, self._num_requests)
        if (reason := get_reason(answer, "failed")) is not None:
            raise self._mark_failed(reason)

    def _mark_failed(
        self, failure_reason: str, *, is_overdue: bool = False
    ) -> EnvironmentFailedError:
        self.has_failed = True
        return EnvironmentFailedError(failure_reason, is_overdue=is_overdue)
