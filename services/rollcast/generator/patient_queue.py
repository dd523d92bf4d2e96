"""The queue under the owner name in use, with calls that are repeated while Redis is away.

call -> its result
 |----> Redis is away: again after a pause, unless the name was changed meanwhile
 `----> fenced: the tasks are dropped; raised if there is no new name in time
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rollcast.rollouts.base import GeneratorQueue
from rollcast.rollouts.errors import OwnerFenced, QueueAway
from rollcast.telemetry.logging import get_logger

QUEUE_RETRY_SECONDS = 1.0

log = get_logger()
T = TypeVar("T")


class WithdrawnError(Exception):
    """Raised while a claim waits: the weights or the trainer were lost, so it claims nothing."""


class PatientQueue:
    """One connection to the queue after another, each under a name of its own."""

    def __init__(
        self,
        open_queue: Callable[[str], GeneratorQueue],
        owner: str,
        fence_patience_seconds: float,
        on_fenced: Callable[[], None],
    ) -> None:
        """on_fenced: drops the tasks, which others have now."""
        self._open_queue = open_queue
        self.current = open_queue(owner)
        self._fence_patience_seconds = fence_patience_seconds
        self._on_fenced = on_fenced
        self._fenced_since: float | None = None
        self._away_seconds = 0.0

    async def change_owner(self, owner: str) -> None:
        former = self.current
        self.current = self._open_queue(owner)
        self._fenced_since = None
        await former.close()

    def take_away_seconds(self) -> float:
        """How long Redis was away since the last call."""
        away_seconds = self.current.away_seconds
        # Not below 0: after a fence the new queue counts from 0.
        added_seconds = max(away_seconds - self._away_seconds, 0.0)
        self._away_seconds = away_seconds
        return added_seconds

    async def call(
        self, queue: GeneratorQueue, method: Callable[[GeneratorQueue], Awaitable[T]]
    ) -> T | None:
        """Repeat a call while Redis is away; None = the tasks went to others, or the weights were
        lost.

        queue: that of the name under which the tasks were claimed. Nothing is repeated once the
        name is not ours.
        """
        while True:
            try:
                result = await method(queue)
                self._fenced_since = None
                return result
            except WithdrawnError:
                return None
            except QueueAway as error:
                log.warning("redis is away", reason=str(error))
                await asyncio.sleep(QUEUE_RETRY_SECONDS)
                if queue is not self.current:
                    return None
            except OwnerFenced:
                if queue is not self.current:
                    return None
                # The trainer informs the weight member too, which then gets a new name.
                self._fenced_since = self._fenced_since or time.monotonic()
                self._on_fenced()
                if time.monotonic() - self._fenced_since > self._fence_patience_seconds:
                    raise
                await asyncio.sleep(QUEUE_RETRY_SECONDS)
                return None
