"""Claims tasks while there are slots, keeps them alive, hands in what is finished.

    claim -> run -> publish                      refused: it has another owner by now; counted
              |---> hand back (drain, hand over) partial rollouts travel along, no failure
              |---> fail (bad task)              attempt + 1
              `---> drop (fenced, not the owner) another generator has it already

Slots are rollouts: no more than the engine runs at once are ever claimed, so nothing waits inside it. Evaluation is
claimed first, but takes at most its share of the slots while training prompts wait.

While no trainer is reached nothing is claimed: what a restart will lose need not be sampled. Groups under way go on.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rollcast.config.errors import UserError
from rollcast.generator.grading import GradingThreads
from rollcast.generator.groups import ActiveGroup
from rollcast.generator.vllm.engine import BadRequestError, Engine
from rollcast.rollouts.base import Claimed, GeneratorQueue
from rollcast.rollouts.errors import OwnerFenced, QueueAway
from rollcast.rollouts.records import PromptTask, Purpose
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.wire.version import PolicyVersion

CLAIM_BLOCK_SECONDS = 0.5
"""How long one claim waits for a training task; evaluation is looked at again after it."""
QUEUE_RETRY_SECONDS = 1.0
HOLD_BACK_SECONDS = 2 * CLAIM_BLOCK_SECONDS
"""After a hand-over no training task is claimed for so long: a faster generator with room looks at the queue at least
every CLAIM_BLOCK_SECONDS, and once more where it just missed the task. If none has room then, this one may go on."""


class _WithdrawnError(Exception):
    """Nothing may be claimed any more, as came out while a claim waited: the weights or the trainer are lost.

    To claim under a lost version would mislead the staleness gate.
    """


log = get_logger()
T = TypeVar("T")


@dataclass(frozen=True)
class Slots:
    """What a generator may claim."""

    total: int
    """Rollouts at once."""
    train_rollouts: int
    """G of a training task."""
    eval_rollouts: int
    """G of an evaluation task."""
    max_eval_share: float
    """Of the slots, while training prompts wait."""

    def __post_init__(self) -> None:
        largest = max(self.train_rollouts, self.eval_rollouts)
        if self.total < largest:
            raise UserError(
                f"generator.slots = {self.total}: fewer than the {largest} rollouts of one prompt; "
                "raise it to at least that"
            )

    def eval_tasks(self, running: int, running_eval: int, *, training_waits: bool) -> int:
        """How many evaluation tasks fit now. One always may, else a small share would stop evaluation."""
        room = self.total - running
        if training_waits:
            share = max(self.total * self.max_eval_share, self.eval_rollouts)
            room = min(room, int(share) - running_eval)
        return max(room // self.eval_rollouts, 0)

    def train_tasks(self, running: int) -> int:
        return max((self.total - running) // self.train_rollouts, 0)


class ClaimLoop:
    """run() until `stop_claiming`; then `drain`. `fenced` begins again under a new owner name."""

    def __init__(
        self,
        *,
        engine: Engine,
        grader: GradingThreads,
        open_queue: Callable[[str], GeneratorQueue],
        owner: str,
        slots: Slots,
        renew_seconds: float,
        fence_patience_seconds: float,
        reaches_trainer: Callable[[], bool],
        exporter: Exporter,
    ) -> None:
        self._engine = engine
        self._grader = grader
        self._open_queue = open_queue
        self._queue = open_queue(owner)
        self._slots = slots
        self._renew_seconds = renew_seconds
        self._fence_patience_seconds = fence_patience_seconds
        self._reaches_trainer = reaches_trainer
        self._exporter = exporter
        self._groups: dict[int, ActiveGroup] = {}
        self._handed_over: set[ActiveGroup] = set()
        self._hold_back_until = -math.inf
        self._claiming = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._lost: Callable[[PolicyVersion], bool] = lambda _: False
        self._failure: BaseException | None = None
        self._fenced_since: float | None = None
        self._away_seconds = 0.0
        self._idle_booked_at = time.monotonic()
        self.draining = False

    @property
    def owner(self) -> str:
        return self._queue.owner

    @property
    def num_running(self) -> int:
        """Rollouts that take a slot."""
        return sum(group.num_unfinished for group in self._groups.values())

    async def run(self) -> None:
        """Claim until `stop_claiming`. Raises what the engine raises, and OwnerFenced where no new name came."""
        renewal = asyncio.create_task(self._renew())
        self._idle_booked_at = time.monotonic()
        try:
            while not self.draining:
                if self._failure is not None:
                    raise self._failure
                if renewal.done():
                    await renewal
                self._book_idle_time()
                self._exporter.set(names.RUNNING_ROLLOUTS, self.num_running)
                away_seconds = self._queue.away_seconds
                self._exporter.add(names.REDIS_AWAY, max(away_seconds - self._away_seconds, 0.0))
                self._away_seconds = away_seconds
                self._changed.clear()
                if not self._may_claim() or not await self._patiently(self._queue, self._claim):
                    await self._wait_for_change(CLAIM_BLOCK_SECONDS)
        finally:
            renewal.cancel()

    def stop_claiming(self) -> None:
        self.draining = True
        self._changed.set()

    async def drain(self, drain_seconds: float, hand_back_seconds: float) -> None:
        """Let groups finish for `drain_seconds`, hand the rest back as partial rollouts. Claims stay renewed."""
        assert self.draining
        renewal = asyncio.create_task(self._renew())
        try:
            deadline = time.monotonic() + drain_seconds
            while self._tasks and self._failure is None and time.monotonic() < deadline:
                self._changed.clear()
                await self._wait_for_change(min(0.2, drain_seconds))
            for group in self._groups.values():
                group.stop()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=hand_back_seconds)
            if self._groups:
                log.warning("tasks left to their deadline", tasks=len(self._groups))
        finally:
            renewal.cancel()

    def hand_over(self, sequences: Iterable[int]) -> None:
        """Hand these tasks back as they are, and leave them to others: see HOLD_BACK_SECONDS. Returns at once.

        Ignored where they are not ours (any more). Evaluation is claimed as before.
        """
        for sequence in sequences:
            if group := self._groups.get(sequence):
                self._handed_over.add(group)
                group.stop()
                self._hold_back()

    def _hold_back(self) -> None:
        self._hold_back_until = time.monotonic() + HOLD_BACK_SECONDS

    async def fenced(self, owner: str) -> None:
        """Others have our tasks: forget them all and claim as `owner` from now on."""
        await self._forget(list(self._groups.values()))
        former, self._queue = self._queue, self._open_queue(owner)
        self._fenced_since = None
        await former.close()

    async def restart_lost(self, lost: Callable[[PolicyVersion], bool]) -> int:
        """Begin again the rollouts that hold tokens of lost versions, from now on also where such a task is claimed.

        Returns how many began again now.
        """
        self._lost = lost
        return sum(self._restart_lost(group) for group in self._groups.values())

    def _restart_lost(self, group: ActiveGroup) -> int:
        count = group.restart_if(self._lost)
        if count:
            self._exporter.add(names.ABORTED, count)
        return count

    async def recorded(self) -> None:
        """Every claim that asked for a first version is on record."""
        await self._queue.recorded()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._queue.close()

    async def _claim(self, queue: GeneratorQueue) -> bool:
        """One round of claims: evaluation within its share, training, more evaluation if no training waits."""
        claimed = await self._claim_evals(queue, training_waits=True)
        block_seconds = 0.0 if claimed else CLAIM_BLOCK_SECONDS
        async with self._claiming:
            holds_back = time.monotonic() < self._hold_back_until
            train = 0 if holds_back else self._slots.train_tasks(self.num_running)
            if not train:
                return claimed
            trained = await queue.claim(
                train=train, evals=0, first_version=self._first_version, block_seconds=block_seconds
            )
            self._begin(queue, trained)
        if len(trained) < train:
            await self._claim_evals(queue, training_waits=False)
        return True

    async def _claim_evals(self, queue: GeneratorQueue, *, training_waits: bool) -> bool:
        running_eval = sum(
            group.num_unfinished for group in self._groups.values() if group.claimed.task.purpose is Purpose.EVAL
        )
        evals = self._slots.eval_tasks(self.num_running, running_eval, training_waits=training_waits)
        if not evals:
            return False
        claimed = await queue.claim(train=0, evals=evals, first_version=self._first_version, block_seconds=0.0)
        self._begin(queue, claimed)
        return bool(claimed)

    def _may_claim(self) -> bool:
        return self._engine.version is not None and self._reaches_trainer()

    def _first_version(self) -> PolicyVersion:
        if not self._may_claim():
            raise _WithdrawnError
        assert self._engine.version is not None
        return self._engine.version

    def _begin(self, queue: GeneratorQueue, claimed: list[Claimed]) -> None:
        if queue is not self._queue:
            return  # fenced meanwhile: the trainer gave them to others
        self._book_idle_time()
        for one in claimed:
            group = ActiveGroup(one, self._engine, self._grader)
            self._restart_lost(group)
            self._groups[one.task.sequence] = group
            task = asyncio.create_task(self._work(group, queue))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _book_idle_time(self) -> None:
        """Count the time since the last call if no group ran in it. Called right before `_groups` changes."""
        now = time.monotonic()
        if not self._groups:
            self._exporter.add(names.GENERATOR_IDLE, now - self._idle_booked_at)
        self._idle_booked_at = now

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self._changed.set()

    async def _work(self, group: ActiveGroup, queue: GeneratorQueue) -> None:
        """Run one group to its end, whichever that is."""
        sequence = group.claimed.task.sequence
        reason = ""
        try:
            try:
                await group.run()
            except* (BadRequestError, UserError) as errors:
                reason = str(errors.exceptions[0])
            if self._groups.get(sequence) is not group:
                return
            if reason:
                log.warning("task failed", sequence=sequence, reason=reason)
                accepted = await self._patiently(queue, lambda queue: queue.fail(group.claimed, reason))
            elif group.finished:
                record = await group.group(queue.owner)
                accepted = await self._patiently(queue, lambda queue: queue.publish(group.claimed, record))
            else:
                task = await group.unfinished_task()
                accepted = await self._patiently(queue, lambda queue: self._hand_back(queue, group, task))
                self._exporter.add(names.HAND_BACKS)
                self._exporter.add(names.HAND_OVERS, float(group in self._handed_over))
            if not accepted:
                self._exporter.add(names.REFUSED)
        finally:
            if self._groups.get(sequence) is group:
                self._book_idle_time()
                del self._groups[sequence]
            self._handed_over.discard(group)

    async def _hand_back(self, queue: GeneratorQueue, group: ActiveGroup, task: PromptTask) -> bool:
        """Once no claim of ours waits for a training task: it would be the first to get this one."""
        async with self._claiming:
            accepted = await queue.hand_back(group.claimed, task)
            if group in self._handed_over:
                self._hold_back()
            return accepted

    async def _forget(self, groups: list[ActiveGroup]) -> None:
        self._book_idle_time()
        for group in groups:
            self._groups.pop(group.claimed.task.sequence, None)
            group.stop()
        self._changed.set()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._renew_seconds)
            if self._groups:
                await self._renew_all(dict(self._groups))

    async def _renew_all(self, groups: dict[int, ActiveGroup]) -> None:
        mine = [group.claimed for group in groups.values()]
        lost = await self._patiently(self._queue, lambda queue: queue.renew(mine))
        # A task may have been claimed anew meanwhile, under a new name even: only what was asked about is meant.
        gone = [groups[sequence] for sequence in lost or () if self._groups.get(sequence) is groups[sequence]]
        # One that is being handed in right now is released, not lost.
        gone = [group for group in gone if not group.finished and not group.stopped]
        if gone:
            log.warning("tasks have another owner now", tasks=len(gone))
            self._exporter.add(names.REFUSED, len(gone))
            await self._forget(gone)

    async def _patiently(self, queue: GeneratorQueue, call: Callable[[GeneratorQueue], Awaitable[T]]) -> T | None:
        """Repeat a call while Redis is away; None where the tasks went to others, or the weights were lost.

        queue: of the name under which the tasks were claimed. Once that name is no longer ours nothing is repeated.
        """
        while True:
            try:
                result = await call(queue)
                self._fenced_since = None
                return result
            except _WithdrawnError:
                return None
            except QueueAway as error:
                log.warning("redis is away", reason=str(error))
                await asyncio.sleep(QUEUE_RETRY_SECONDS)
                if queue is not self._queue:
                    return None
            except OwnerFenced:
                if queue is not self._queue:
                    return None
                # The trainer tells the weight member too, which brings a new name.
                self._fenced_since = self._fenced_since or time.monotonic()
                await self._forget(list(self._groups.values()))
                if time.monotonic() - self._fenced_since > self._fence_patience_seconds:
                    raise
                await asyncio.sleep(QUEUE_RETRY_SECONDS)
                return None

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
