"""The generator's end of a connection to a process that answers one request at a time."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from rollcast.environments.base import EnvironmentFailedError
from rollcast.processes.frames import MAX_ANSWER_BYTES, FrameError, pack_message, read

Answer = TypeVar("Answer")


class ProcessConnection:
    """Whatever the process sends, only EnvironmentFailedError is raised."""

    process: ClassVar[str]
    """The process, in failures."""
    after_deadline: ClassVar[str]
    """The words of a failure between a request and its deadline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.has_failed = False
        """Whether it cannot serve another episode."""
        self.is_silent = False
        """Whether its process left a request without an answer beyond the deadline."""

    async def close(self) -> None:
        """Close the connection; the other end then stops its work for it."""
        self.has_failed = True
        # A regular close waits until the rest of a request is sent, which a process that is frozen
        # never reads.
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _exchange(
        self,
        request_name: str,
        seconds: float,
        parse: Callable[[dict[str, Any]], Answer],
        message: Mapping[str, Any] | None = None,
    ) -> Answer:
        """The answer to a message. message: None = the process answers by itself. parse: raises
        EnvironmentFailedError and FrameError.
        """
        is_answered = False
        try:
            # After a deadline the process has this long to interrupt its work and to say so
            async with asyncio.timeout(seconds + 2.0):
                if message is not None:
                    self._writer.write(pack_message(message))
                    await self._writer.drain()
                answer = await read(self._reader, MAX_ANSWER_BYTES)
            result = parse(answer)
            is_answered = True
            return result
        except TimeoutError:
            self.is_silent = True
            raise self._mark_failed(
                f"{request_name} {self.after_deadline} {seconds:g} s", is_overdue=True
            ) from None
        except (OSError, asyncio.IncompleteReadError):
            raise self._mark_failed(f"{self.process} ended during {request_name}") from None
        except FrameError as error:
            raise self._mark_failed(f"{self.process} sent {error}") from error
        finally:
            # After a cancelled request too: its late answer would be read in place of the next one.
            self.has_failed |= not is_answered

    def _mark_failed(
        self, failure_reason: str, *, is_overdue: bool = False
    ) -> EnvironmentFailedError:
        self.has_failed = True
        return EnvironmentFailedError(failure_reason, is_overdue=is_overdue)
