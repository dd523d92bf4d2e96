"""Claims tasks while there are slots, renews the claims, publishes finished groups.

    claim -> run -> publish                      refused: it has another owner by now; counted
              |---> hand back (drain, hand over) with its partial rollouts; not a failure
              |---> fail (bad task)              attempt + 1
              `---> drop (fenced, not the owner) another generator has it already

Slots are rollouts: the loop never claims more than the engine runs concurrently, so nothing waits
inside it. Evaluation tasks are claimed first, but take at most their share of the slots while
training prompts wait.

An episode occupies a slot only while it samples or waits to. In a run that has episodes a task is
claimed as soon as one slot is free, so that as many are in flight as keep the slots full, until the
KV cache cannot hold more of them. Turns and single answers then wait for their slot in the
generator, in the order in which they ask.

Nothing is claimed while the trainer is not reachable, because its restart may lose the result.
Running groups go on.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from rollcast.config.errors import UserError
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.grading import GradingThreads
from rollcast.generator.groups import ActiveGroup
from rollcast.generator.patient_queue import PatientQueue, WithdrawnError
from rollcast.generator.samplers import Samplers
from rollcast.generator.slots import Slots
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import BadRequestError
from rollcast.rollouts.base import Claimed, GeneratorQueue
from rollcast.rollouts.records import PromptTask, Purpose
from rollcast.telemetry import generator_metrics, wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.wire.version import PolicyVersion

CLAIM_BLOCK_SECONDS = 0.5
"""How long one claim may wait for a training task. Evaluation tasks are claimed again after it."""
HOLD_BACK_SECONDS = 2 * CLAIM_BLOCK_SECONDS
"""How long no training task is claimed after a hand-over: a faster generator with free slots reads
the queue every CLAIM_BLOCK_SECONDS, and may just have missed the task once. After that this
generator may claim it again."""


log = get_logger()


@dataclass(kw_only=True, eq=False)
class ClaimLoop:
    """run() until `stop_claiming`; then `drain`.

    After `change_owner` it continues under a new owner name.
    """

    engine: Engine
    grader: GradingThreads
    open_queue: Callable[[str], GeneratorQueue]
    first_owner: str
    slots: Slots
    renew_seconds: float
    fence_patience_seconds: float
    reaches_trainer: Callable[[], bool]
    exporter: Exporter
    episodes: EpisodeParts | None = None
    """None = the run has no environments."""
    sessions: Sessions | None = None
    """None = none of them is a harness."""

    def __post_init__(self) -> None:
        self._samplers = Samplers(self.engine, self.episodes, self.sessions)
        self._queue = PatientQueue(
            self.open_queue, self.first_owner, self.fence_patience_seconds, self._drop_all
        )
        self._groups: dict[int, ActiveGroup] = {}
        self._handed_over: set[ActiveGroup] = set()
        self._hold_back_until = -math.inf
        self._claiming = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_lost: Callable[[PolicyVersion], bool] = lambda _: False
        self._failure: BaseException | None = None
        self._idle_booked_at = time.monotonic()
        self.draining = False

    @property
    def owner(self) -> str:
        return self._queue.current.owner

    @property
    def num_running(self) -> int:
        """Rollouts that occupy a slot."""
        return sum(group.num_slots for group in self._groups.values())

    async def run(self) -> None:
        """Claim until `stop_claiming`.

        Raises the engine's errors, and OwnerFenced if it gets no new name in time.
        """
        renewal = asyncio.create_task(self._renew())
        self._idle_booked_at = time.monotonic()
        try:
            while not self.draining:
                if self._failure is not None:
                    raise self._failure
                if renewal.done():
                    await renewal  # raises: it ends with an error only
                self._book_idle_time()
                self.exporter.set(generator_metrics.RUNNING_ROLLOUTS, self.num_running)
                self.exporter.add(wire_metrics.REDIS_AWAY, self._queue.take_away_seconds())
                # Before the state is read, so that a change after that ends the wait below.
                self._changed.clear()
                may_claim = self._may_claim() and self._may_begin()
                if not may_claim or not await self._queue.call(self._queue.current, self._claim):
                    await self._wait_for_change(CLAIM_BLOCK_SECONDS)
        finally:
            renewal.cancel()

    def stop_claiming(self) -> None:
        self.draining = True
        self._changed.set()

    async def drain(self, drain_seconds: float, hand_back_seconds: float) -> None:
        """Let groups finish for `drain_seconds`, then hand the others back as partial rollouts.

        Claims are renewed.
        """
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
                log.warning(
                    "tasks were not handed back in time; their claims expire",
                    tasks=len(self._groups),
                )
        finally:
            renewal.cancel()

    def hand_over(self, sequences: Iterable[int]) -> None:
        """Hand these tasks back with their partial rollouts, for other generators
        (HOLD_BACK_SECONDS). Does not wait.

        Tasks that are not ours (any more) are ignored.
        """
        for sequence in sequences:
            if group := self._groups.get(sequence):
                self._handed_over.add(group)
                group.stop()
                self._hold_back()

    def _hold_back(self) -> None:
        self._hold_back_until = time.monotonic() + HOLD_BACK_SECONDS

    async def change_owner(self, owner: str) -> None:
        """Others have our tasks: drop them all and claim as `owner` from now on."""
        self._drop_all()
        await self._queue.change_owner(owner)

    async def restart_lost(self, lost: Callable[[PolicyVersion], bool]) -> int:
        """Restart the rollouts that hold tokens of lost versions, and those of later claims as they
        come.

        Returns how many were restarted now.
        """
        self._is_lost = lost
        return sum(self._restart_lost_rollouts(group) for group in self._groups.values())

    def _restart_lost_rollouts(self, group: ActiveGroup) -> int:
        count = group.restart_if(self._is_lost)
        if count:
            self.exporter.add(generator_metrics.ABORTED, count)
        return count

    async def wait_until_recorded(self) -> None:
        """Return once every claim that asked for a first version is recorded in Redis."""
        await self._queue.current.wait_until_recorded()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._queue.current.close()

    async def _claim(self, queue: GeneratorQueue) -> bool:
        """One round of claims: evaluation within its share, training, more evaluation if no
        training waits.
        """
        claimed = await self._claim_evals(queue, training_waits=True)
        block_seconds = 0.0 if claimed else CLAIM_BLOCK_SECONDS
        # A task that was handed back during this claim would come back with it (`_hand_back`).
        async with self._claiming:
            holds_back = time.monotonic() < self._hold_back_until
            train = 0 if holds_back else self.slots.train_tasks(self.num_running)
            if not train:
                return claimed
            trained = await queue.claim(
                train=train, evals=0, first_version=self._first_version, block_seconds=block_seconds
            )
            self._start_groups(queue, trained)
        if len(trained) < train:
            # No training task waits now, so evaluation may use more than its share.
            await self._claim_evals(queue, training_waits=False)
        return True

    async def _claim_evals(self, queue: GeneratorQueue, *, training_waits: bool) -> bool:
        running_eval = sum(
            group.num_slots
            for group in self._groups.values()
            if group.claimed.task.purpose is Purpose.EVAL
        )
        evals = self.slots.eval_tasks(self.num_running, running_eval, training_waits=training_waits)
        if not evals:
            return False
        claimed = await queue.claim(
            train=0, evals=evals, first_version=self._first_version, block_seconds=0.0
        )
        self._start_groups(queue, claimed)
        return bool(claimed)

    def _may_claim(self) -> bool:
        return self.engine.version is not None and self.reaches_trainer()

    def _may_begin(self) -> bool:
        in_flight = sum(group.num_unfinished for group in self._groups.values())
        return self.slots.may_begin(
            in_flight, sum(group.num_kv_tokens for group in self._groups.values())
        )

    def _first_version(self) -> PolicyVersion:
        # A claim under a lost version would mislead the staleness gate.
        if not self._may_claim():
            raise WithdrawnError
        assert self.engine.version is not None
        return self.engine.version

    def _start_groups(self, queue: GeneratorQueue, claimed: list[Claimed]) -> None:
        if queue is not self._queue.current:
            return  # fenced in the meantime: the trainer gave the tasks to others
        self._book_idle_time()
        for claim in claimed:
            group = ActiveGroup(claim, self.engine, self.grader, self._samplers)
            # A former owner's part may hold tokens of lost versions.
            self._restart_lost_rollouts(group)
            self._groups[claim.task.sequence] = group
            task = asyncio.create_task(self._run_group(group, queue))
            self._tasks.add(task)
            task.add_done_callback(self._record_task_end)

    def _book_idle_time(self) -> None:
        """Count the time since the last call if no group ran in it.

        Call it right before `_groups` changes.
        """
        now_seconds = time.monotonic()
        if not self._groups:
            self.exporter.add(generator_metrics.GENERATOR_IDLE, now_seconds - self._idle_booked_at)
        self._idle_booked_at = now_seconds

    def _record_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self._changed.set()

    async def _run_group(self, group: ActiveGroup, queue: GeneratorQueue) -> None:
        """Run one group until it is published, failed, handed back or dropped."""
        sequence = group.claimed.task.sequence
        reason = ""
        try:
            try:
                await group.run()
            # A group samples its rollouts in a TaskGroup, which wraps their errors.
            except* (BadRequestError, UserError) as errors:
                reason = str(errors.exceptions[0])
            # Dropped in the meantime: another generator owns the task.
            if self._groups.get(sequence) is not group:
                return
            if reason:
                log.warning("task failed", sequence=sequence, reason=reason)
                accepted = await self._queue.call(
                    queue, lambda queue: queue.fail(group.claimed, reason)
                )
            elif group.finished:
                record = await group.group(queue.owner)
                accepted = await self._queue.call(
                    queue, lambda queue: queue.publish(group.claimed, record)
                )
            else:
                task = await group.unfinished_task()
                accepted = await self._queue.call(
                    queue, lambda queue: self._hand_back(queue, group, task)
                )
                self.exporter.add(generator_metrics.HAND_BACKS)
                self.exporter.add(generator_metrics.HAND_OVERS, float(group in self._handed_over))
            if not accepted:
                self.exporter.add(generator_metrics.REFUSED)
        finally:
            if self._groups.get(sequence) is group:
                self._book_idle_time()
                del self._groups[sequence]
            self._handed_over.discard(group)

    async def _hand_back(self, queue: GeneratorQueue, group: ActiveGroup, task: PromptTask) -> bool:
        """Waits until no claim of ours waits for a training task, because that claim would get this
        task.
        """
        async with self._claiming:
            accepted = await queue.hand_back(group.claimed, task)
            if group in self._handed_over:
                # The task is back on the queue only now, so the time counts from here.
                self._hold_back()
            return accepted

    def _drop_all(self) -> None:
        self._drop(list(self._groups.values()))

    def _drop(self, groups: list[ActiveGroup]) -> None:
        self._book_idle_time()
        for group in groups:
            self._groups.pop(group.claimed.task.sequence, None)
            group.stop()
        self._changed.set()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.renew_seconds)
            if self._groups:
                await self._renew_all()

    async def _renew_all(self) -> None:
        groups = dict(self._groups)
        running_claims = [group.claimed for group in groups.values()]
        lost = await self._queue.call(
            self._queue.current, lambda queue: queue.renew(running_claims)
        )
        # A task may have been claimed again in the meantime, even under a new name: compare the
        # group, not the task.
        # A group that is being published right now is released, not lost.
        gone = [
            group
            for sequence in lost or ()
            if (group := groups[sequence]) is self._groups.get(sequence)
            and not (group.finished or group.stopped)
        ]
        if gone:
            log.warning("tasks have another owner now", tasks=len(gone))
            self.exporter.add(generator_metrics.REFUSED, len(gone))
            self._drop(gone)

    async def _wait_for_change(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
