"""An operator's view of wire 1 over Redis streams: every task's state, and repairs of single tasks.

A repair is one script, as every move of a task is, so it takes effect between two calls of the
services or is refused: an answer that arrives first wins, one that arrives later is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rollcast.config.connections import Redis as RedisSettings
from rollcast.rollouts import index
from rollcast.rollouts.base import MAX_FAILURES, Outstanding
from rollcast.rollouts.outage import Outage
from rollcast.rollouts.records import Purpose
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue

Action = Literal["requeue", "bury"]


@dataclass(frozen=True, slots=True)
class DeadEntry:
    """An entry of the stream :dead, whose text any program may have written."""

    at: float
    """Unix seconds."""
    task: str
    failures: str
    purpose: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue at one moment."""

    outstanding: Outstanding = field(default_factory=Outstanding)
    num_damaged: int = 0
    """Records of :inflight that cannot be read."""
    idle_seconds: dict[tuple[Purpose, str], float] = field(default_factory=dict)
    """Purpose and stream id of a claimed task -> seconds since its owner renewed the claim."""
    dead_entries: tuple[DeadEntry, ...] = ()
    """The newest first."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The outcome of one action on a task."""

    state: str
    """The state in which the task was found: one of `index`, `absent`, or `damaged`."""
    owner: str
    """The generator that had claimed it; empty if none had."""
    idle_seconds: float
    """Seconds since the owner renewed its claim."""
    is_done: bool


class RedisOperatorQueue(RedisTrainerQueue):
    """The trainer's connection and scripts, for one look or one repair."""

    def __init__(self, settings: RedisSettings, run: str) -> None:
        super().__init__(settings, run)
        # An operator rather sees that Redis is away than waits for it.
        self._outage = Outage(patience_seconds=1.0, is_logged=False)

    def look(self, num_dead: int) -> QueueView:
        """Changes nothing. `num_dead`: entries of :dead that are returned at most."""
        flat, claims, dead = self._run("look", num_dead)
        outstanding, damaged = index.outstanding(zip(flat[::2], flat[1::2], strict=True))
        return QueueView(
            outstanding,
            len(damaged),
            {
                (Purpose(purpose.decode()), stream_id.decode()): milliseconds / 1000
                for purpose, stream_id, milliseconds in claims
            },
            tuple(_dead_entry(*fields) for fields in dead),
        )

    def repair(
        self, action: Action, sequence: int, reason: str, *, min_idle_seconds: float
    ) -> Repair:
        """Let a claimed or dead task be sampled again, or give up a waiting or claimed one.

        `min_idle_seconds`: a claim that was renewed more recently is left alone.
        """
        state, owner, idle_milliseconds, is_done = self._run(
            "repair", action, sequence, int(min_idle_seconds * 1000), MAX_FAILURES, reason
        )
        return Repair(
            state.decode(),
            owner.decode(errors="replace"),
            idle_milliseconds / 1000,
            is_done=bool(is_done),
        )


def _dead_entry(stream_id: bytes, *fields: bytes) -> DeadEntry:
    milliseconds = int(stream_id.partition(b"-")[0])
    return DeadEntry(milliseconds / 1000, *(field.decode(errors="replace") for field in fields))
