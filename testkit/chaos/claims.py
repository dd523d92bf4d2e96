"""How soon tasks of a lost generator are claimed by another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from contextlib import suppress

from redis import RedisError

from rollcast.config.connections import Redis
from rollcast.connections.redis import RedisAway
from rollcast.rollouts.base import Outstanding
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.chaos.fleet import RUN, Fleet

WATCH_SECONDS = 120.0
"""Longest watch of one fault's tasks: far more than any target, so that a miss has a figure."""


def outstanding(fleet: Fleet) -> Outstanding:
    queue = RedisTrainerQueue(Redis(port=fleet.system.redis_port), RUN)
    try:
        return queue.outstanding()
    finally:
        queue.close()


class ClaimWatch(threading.Thread):
    """Measures how soon after a fault the last of these tasks has another owner or an end."""

    def __init__(self, fleet: Fleet, held: Collection[int], owner: str) -> None:
        super().__init__(daemon=True, name="claim-watch")
        self._fleet = fleet
        self._held = set(held)
        self._owner_prefix = f"{owner}-"
        self._began = time.monotonic()
        self.seconds: float | None = None
        """None = not all within WATCH_SECONDS, or Redis could not be asked."""

    def run(self) -> None:
        with suppress(RedisError, *RedisAway):
            self._watch()

    def _watch(self) -> None:
        queue = RedisTrainerQueue(Redis(port=self._fleet.system.redis_port), RUN)
        former_owners = {
            claim.owner
            for sequence, claim in queue.outstanding().claims.items()
            if sequence in self._held and claim.owner.startswith(self._owner_prefix)
        }
        while time.monotonic() - self._began < WATCH_SECONDS:
            now = queue.outstanding()
            open_tasks = {
                sequence
                for sequence in self._held
                if sequence in now.waiting
                or (sequence in now.claims and now.claims[sequence].owner in former_owners)
            }
            if not open_tasks:
                self.seconds = time.monotonic() - self._began
                break
            time.sleep(0.1)
        queue.close()
