"""The time of one episode. Waits for slots of the engine are not its fault: they move its deadline,
and have a budget of their own.
"""

import asyncio
import time

from rollcast.generator.episodes.waits import UnusableEpisodeError


class EpisodeClock:
    """The deadline of one episode, and how long it may still wait for slots."""

    def __init__(self, slots: asyncio.Semaphore, max_seconds: float) -> None:
        """`max_seconds`: of the episode, and of its waits for slots together."""
        self._slots = slots
        self._max_seconds = max_seconds
        self._slot_seconds = max_seconds
        """How long it may still wait for slots."""
        self._began_waits: list[float] = []
        """Monotonic seconds at which the present waits for a slot began."""
        self.deadline = float("inf")
        """Monotonic seconds: what runs then is cut, and nothing is sampled after it."""

    def start(self) -> None:
        """Let the episode's time begin now."""
        self.deadline = time.monotonic() + self._max_seconds

    @property
    def remaining_seconds(self) -> float:
        """Until the deadline; not positive = the time is over."""
        now_seconds = time.monotonic()
        # The deadline moves when a wait for a slot ends, so waits that go on are added here.
        waited = sum(now_seconds - began_at for began_at in self._began_waits)
        return self.deadline - now_seconds + waited

    async def take_slot(self) -> None:
        """Wait for a slot of the engine.

        Raises UnusableEpisodeError if the waits together were too long.
        """
        began_at = time.monotonic()
        self._began_waits.append(began_at)
        try:
            async with asyncio.timeout(max(self._slot_seconds, 0.0)):
                await self._slots.acquire()
        except TimeoutError:
            raise UnusableEpisodeError(
                f"no slot of the engine was free in the {self._max_seconds:g} seconds of waiting"
            ) from None
        finally:
            self._began_waits.remove(began_at)
            waited = time.monotonic() - began_at
            self._slot_seconds -= waited
            self.deadline += waited
