"""The waits of one attempt at an episode, or of one answer: each ends at its deadline, or when it
is given up.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from rollcast.environments.base import EnvironmentFailedError

T = TypeVar("T")


class GivenUpError(Exception):
    """The attempt is not needed any more: its task is handed over, or the episode begins again."""


class UnusableEpisodeError(Exception):
    """The environment gave what cannot be used, and would again.

    The message is one sentence without its name.
    """


class Waits:
    """Waits for an environment, or for a slot of the engine, one at a time."""

    def __init__(self) -> None:
        self.is_given_up = False
        self.environment_seconds = 0.0
        self._waiting: asyncio.Task[Any] | None = None

    def give_up(self) -> None:
        """Make the running wait and all later ones raise GivenUpError."""
        if self._waiting is not None and not self.is_given_up:
            self._waiting.cancel()
        self.is_given_up = True

    async def ask(self, call: Coroutine[Any, Any, T], seconds: float) -> T:
        """Wait for an answer of the environment.

        Raises EnvironmentFailedError, TimeoutError, GivenUpError.
        """
        began_at = time.monotonic()
        try:
            return await self.wait(call, seconds)
        except (EnvironmentFailedError, TimeoutError, GivenUpError):
            raise
        except Exception as error:
            # Clients of environments run code of third parties: one episode fails, not the
            # generator.
            raise EnvironmentFailedError(
                f"its client raised {type(error).__name__}: {error}"
            ) from error
        finally:
            self.environment_seconds += time.monotonic() - began_at

    async def wait(self, call: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Wait for a result. Raises TimeoutError, GivenUpError, and what the call raises.

        `seconds`: None = until `give_up`; the trainer's deadline for the task ends that.
        """
        if self.is_given_up:
            # Python warns of a coroutine that is never awaited.
            call.close()
            raise GivenUpError
        # Not in a task of its own: what the call has taken, a slot say, would be lost if both ended
        # together.
        task = asyncio.current_task()
        assert task is not None
        self._waiting = task
        try:
            async with asyncio.timeout(None if seconds is None else max(seconds, 0.0)):
                return await call
        except asyncio.CancelledError:
            # Other requests to cancel this task, a shutdown say, must still reach it.
            if self.is_given_up and task.uncancel() == 0:
                raise GivenUpError from None
            raise
        finally:
            self._waiting = None
