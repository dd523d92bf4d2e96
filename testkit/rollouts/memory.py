"""Wire 1 inside one process: the same behaviour as over Redis, for tests and for trying the trainer
out.

Everything passes the codec, so that what one end keeps the other cannot change.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rollcast.rollouts.base import (
    MAX_FAILURES,
    Claimed,
    Dead,
    Delivery,
    Finished,
    Outstanding,
    Redispatch,
    Waiting,
)
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError, OwnerFenced
from rollcast.rollouts.records import Claim, PromptTask, Purpose, RolloutGroup
from rollcast.wire.version import PolicyVersion

_POLL_SECONDS = 0.005


@dataclass(slots=True)
class _Task:
    state: Waiting | Claim | Finished | Dead
    payload: bytes
    """The task; once it is finished, the group."""
    first_version: PolicyVersion | None
    """Tokens of the rollouts it carries."""
    renewed_at: float = 0.0
    published_as: str = ""
    """Entry that its owner had when it published."""


@dataclass(slots=True)
class MemoryBroker:
    """Counterpart of Redis for the queues in memory: both ends of a run share one. Thread-safe."""

    clock: Callable[[], float] = time.time
    """Unix seconds."""
    tasks: dict[int, _Task] = field(default_factory=dict)
    """Everything dispatched and not settled, in the order in which it came to its present place."""
    fenced: dict[str, str] = field(default_factory=dict)
    """Removed generators, with the reason."""
    state: dict[str, bytes] = field(default_factory=dict)
    incarnation: int = 0
    refused: int = 0
    unreadable: int = 0
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    atomic: threading.RLock = field(default_factory=threading.RLock)
    """Held for one script."""

    def new_id(self) -> str:
        return f"{next(self._ids)}-0"

    def enqueue(
        self,
        sequence: int,
        attempt: int,
        purpose: Purpose,
        payload: bytes,
        version: PolicyVersion | None,
    ) -> None:
        self.tasks.pop(sequence, None)
        self.tasks[sequence] = _Task(
            Waiting(attempt, purpose, self.new_id(), version), payload, version
        )

    def find_owned(self, owner: str, claimed: Claimed) -> _Task | None:
        """The task if `owner` still has it."""
        task = self.tasks.get(claimed.task.sequence)
        if task and isinstance(task.state, Claim) and task.state.owner == owner:
            return task if task.state.stream_id == claimed.stream_id else None
        return None

    def redo(self, sequences: Sequence[int], reason: str) -> Redispatch:
        """Count a failure of each claimed task."""
        redone, dead = [], []
        for sequence in sequences:
            task = self.tasks.get(sequence)
            if task is None or not isinstance(task.state, Claim):
                continue
            attempt, purpose = task.state.attempt + 1, task.state.purpose
            if attempt < MAX_FAILURES:
                self.enqueue(sequence, attempt, purpose, task.payload, task.first_version)
                redone.append(sequence)
            else:
                task.state = Dead(attempt, purpose, self.new_id(), reason)
                dead.append(sequence)
        return Redispatch(tuple(redone), tuple(dead))


class MemoryTrainerQueue:
    """The trainer's end. See `base.TrainerQueue`."""

    away_seconds = 0.0
    unknown_fields = 0

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._delivered: set[str] = set()

    def start_incarnation(self, at_least: int) -> int:
        with self._broker.atomic:
            self._broker.incarnation = max(self._broker.incarnation + 1, at_least)
            return self._broker.incarnation

    def dispatch(self, tasks: Sequence[PromptTask]) -> list[int]:
        added = []
        with self._broker.atomic:
            for task in tasks:
                if task.sequence not in self._broker.tasks:
                    payload = encode_task(task)
                    self._broker.enqueue(
                        task.sequence, task.attempt, task.purpose, payload, task.first_version
                    )
                    added.append(task.sequence)
        return added

    def read(self, max_groups: int, block_seconds: float) -> list[Delivery]:
        deadline = time.monotonic() + block_seconds
        while not (deliveries := self._read_now(max_groups)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return deliveries

    def _read_now(self, max_groups: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        with self._broker.atomic:
            for sequence, task in self._broker.tasks.items():
                if isinstance(task.state, Finished) and task.state.stream_id not in self._delivered:
                    if len(deliveries) == max_groups:
                        break
                    self._delivered.add(task.state.stream_id)
                    if delivery := self._deliver(sequence, task, task.state):
                        deliveries.append(delivery)
        return deliveries

    def _deliver(self, sequence: int, task: _Task, entry: Finished) -> Delivery | None:
        try:
            group = decode_group(task.payload)
            reported = (group.attempt, group.purpose, group.first_version, group.generator)
            recorded = (entry.attempt, entry.purpose, entry.first_version, entry.owner)
            if (group.sequence, *reported) != (sequence, *recorded):
                raise CodecError("what was published is not the group's")
        except CodecError as error:
            reason = f"unreadable group: {error}"
            task.state = Dead(entry.attempt + 1, entry.purpose, entry.stream_id, reason)
            self._broker.unreadable += 1
            return None
        return Delivery(entry.stream_id, group, len(task.payload))

    def remove(self, stream_ids: Sequence[str]) -> None:
        gone = set(stream_ids)
        with self._broker.atomic:
            for sequence, task in list(self._broker.tasks.items()):
                if isinstance(task.state, Finished) and task.state.stream_id in gone:
                    del self._broker.tasks[sequence]

    def bury(self, reasons: Mapping[str, str]) -> None:
        self.remove(list(reasons))

    def outstanding(self) -> Outstanding:
        result = Outstanding()
        places: dict[type, dict[int, Any]] = {
            Waiting: result.waiting,
            Claim: result.claims,
            Finished: result.finished,
            Dead: result.dead,
        }
        with self._broker.atomic:
            for sequence, task in self._broker.tasks.items():
                places[type(task.state)][sequence] = task.state
        return result

    def fence(self, owner: str, reason: str) -> Redispatch:
        with self._broker.atomic:
            self._broker.fenced[owner] = reason
            owned = self._claimed_by(lambda task, claim: claim.owner == owner)
            return self._broker.redo(owned, reason)

    def sweep(self, idle_seconds: float) -> Redispatch:
        with self._broker.atomic:
            latest = self._broker.clock() - idle_seconds
            idle = self._claimed_by(lambda task, claim: task.renewed_at <= latest)
            return self._broker.redo(idle, f"its owner was silent for {idle_seconds:g} s")

    def redo(self, sequences: Sequence[int], reason: str) -> Redispatch:
        with self._broker.atomic:
            return self._broker.redo(sequences, reason)

    def retire(self, sequences: Sequence[int]) -> None:
        with self._broker.atomic:
            for sequence in sequences:
                self._broker.tasks.pop(sequence, None)

    def count_refused(self) -> int:
        return self._broker.refused

    def unreadable(self) -> int:
        return self._broker.unreadable

    def get_state(self, name: str) -> bytes | None:
        return self._broker.state.get(name)

    def set_state(self, name: str, value: bytes) -> None:
        self._broker.state[name] = value

    def close(self) -> None:
        """Nothing to let go of."""

    def _claimed_by(self, condition: Callable[[_Task, Claim], bool]) -> list[int]:
        return [
            sequence
            for sequence, task in self._broker.tasks.items()
            if isinstance(task.state, Claim) and condition(task, task.state)
        ]


class MemoryGeneratorQueue:
    """A generator's end. See `base.GeneratorQueue`."""

    away_seconds = 0.0
    unknown_fields = 0

    def __init__(self, broker: MemoryBroker, owner: str) -> None:
        self.owner = owner
        self._broker = broker

    async def claim(
        self,
        *,
        train: int,
        evals: int,
        first_version: Callable[[], PolicyVersion],
        block_seconds: float,
    ) -> list[Claimed]:
        deadline = time.monotonic() + block_seconds
        while True:
            with self._broker.atomic:
                if self.owner in self._broker.fenced:
                    reason = self._broker.fenced[self.owner]
                    raise OwnerFenced(f"{self.owner} was removed from the run: {reason}")
                version = first_version()
                claimed = self._claim_now(Purpose.EVAL, evals, version)
                claimed += self._claim_now(Purpose.TRAIN, train, version)
            if claimed or time.monotonic() >= deadline or (train <= 0 and evals <= 0):
                return claimed
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_until_recorded(self) -> None:
        """Claims are recorded in the moment they are made."""

    async def renew(self, claimed: Sequence[Claimed]) -> list[int]:
        lost = []
        with self._broker.atomic:
            for item in claimed:
                if task := self._broker.find_owned(self.owner, item):
                    task.renewed_at = self._broker.clock()
                else:
                    lost.append(item.task.sequence)
        return lost

    async def publish(self, claimed: Claimed, group: RolloutGroup) -> bool:
        payload = encode_group(group)
        with self._broker.atomic:
            task = self._broker.find_owned(self.owner, claimed)
            if task is None:
                return self._has_published(claimed) or self._refuse()
            task.payload = payload
            task.published_as = claimed.stream_id
            task.state = Finished(
                attempt=claimed.task.attempt,
                purpose=claimed.task.purpose,
                stream_id=self._broker.new_id(),
                first_version=group.first_version,
                owner=self.owner,
                num_bytes=len(payload),
            )
            self._broker.tasks[claimed.task.sequence] = self._broker.tasks.pop(
                claimed.task.sequence
            )
            return True

    async def hand_back(self, claimed: Claimed, task: PromptTask) -> bool:
        returned = claimed.handed_back(task)
        payload = encode_task(returned)
        with self._broker.atomic:
            if self._broker.find_owned(self.owner, claimed) is None:
                return self._refuse()
            self._broker.enqueue(
                task.sequence, returned.attempt, task.purpose, payload, returned.first_version
            )
            return True

    async def fail(self, claimed: Claimed, reason: str) -> bool:
        with self._broker.atomic:
            if self._broker.find_owned(self.owner, claimed) is None:
                return self._refuse()
            self._broker.redo([claimed.task.sequence], reason)
            return True

    async def close(self) -> None:
        """Nothing to let go of."""

    def _has_published(self, claimed: Claimed) -> bool:
        task = self._broker.tasks.get(claimed.task.sequence)
        return (
            task is not None
            and isinstance(task.state, Finished)
            and task.published_as == claimed.stream_id
        )

    def _refuse(self) -> bool:
        self._broker.refused += 1
        return False

    def _claim_now(self, purpose: Purpose, limit: int, version: PolicyVersion) -> list[Claimed]:
        claimed: list[Claimed] = []
        for task in self._broker.tasks.values():
            waiting = task.state
            if len(claimed) >= limit:
                break
            if not isinstance(waiting, Waiting) or waiting.purpose is not purpose:
                continue
            record = decode_task(task.payload)
            record.attempt = waiting.attempt
            first = min(waiting.first_version or version, version)
            task.renewed_at = self._broker.clock()
            task.state = Claim(
                self.owner, first, waiting.attempt, waiting.stream_id, task.renewed_at, purpose
            )
            claimed.append(Claimed(record, waiting.stream_id, first))
        return claimed
