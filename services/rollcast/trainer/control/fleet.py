"""Watches the generators between decisions: counts their devices, and takes tasks back from those
that fail or lag.

    removed by the publisher -> fence      their tasks go on elsewhere immediately
    claims not renewed       -> sweep      owners that died without being members
    far longer than needed   -> overdue    dispatched again
    much slower than a peer  -> hand over  partial rollouts go on elsewhere

No generator is blamed for the time for which Redis was away.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollcast.config.connections import Weights
from rollcast.recipe.schedule import PipelineState, Schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import Purpose
from rollcast.runfolder.event_log import note
from rollcast.runfolder.records import TaskMark
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.hand_over import HandOvers, groups_to_move
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState
from rollcast.weights.sender.publisher import Publisher

OnRemoved = Callable[[str, str], None]
"""Called with the name of a generator that was removed, and why."""

AWAY_RETRY_SECONDS = 0.5
"""Between two calls to a Redis that stays away."""
log = get_logger()


@dataclass(eq=False)
class Fleet:
    """The generators, seen from the trainer.

    `fence` comes from the publisher's thread, all else from the main one.
    """

    _state: TrainerState
    _queue: TrainerQueue
    _reporter: Reporter
    _schedule: Schedule
    _intake: Intake
    _pacing: Pacing
    settings: Weights
    devices_each: int
    """Devices of a generator."""
    is_sharded_over_gpus: bool
    """The learner has collectives on several GPUs, which broadcasts use as well."""
    make_publisher: Callable[[OnRemoved], Publisher]
    stop_requested: Callable[[], bool]
    has_joined: bool = False
    """Whether any generator was at work when `watch` looked."""
    _hand_overs: HandOvers = field(default_factory=HandOvers)
    _counted: set[str] = field(default_factory=set)
    _joined: set[str] = field(default_factory=set)
    """Generators at work when `watch` looked."""

    def __post_init__(self) -> None:
        self.publisher = self.make_publisher(self.fence)
        self._swept_at = time.monotonic()
        self._redis_back_at = time.time()
        self._away_seconds = self._queue.away_seconds

    def watch(self) -> float:
        """Called every round. Returns the seconds for which Redis was away since the last call."""
        members = self.publisher.members()
        away_seconds = self._queue.away_seconds - self._away_seconds
        self._away_seconds += away_seconds
        if away_seconds > 0:
            # In Unix seconds, as the times of claims are.
            self._redis_back_at = time.time()
        joined = {member.name for member in members if member.joined}
        for name in sorted(joined - self._joined):
            note(self._state.folder, f"{name} joined")
        self._joined = joined
        self.has_joined = bool(joined)
        if not self.has_joined:
            self._reporter.no_generator()
        self.count_compute()
        self._pacing.observe_rates(member.decode_tokens_per_second for member in members)
        overdue = self._pacing.overdue(
            self._intake.snapshot.claims, time.time(), redis_back_at=self._redis_back_at
        )
        if overdue:
            log.warning("groups took longer than any working generator needs", tasks=overdue)
            self._count_redone(self._queue.redo(overdue, "overdue").redone, "overdue")
        # Between two sweeps for claims that are not renewed
        if time.monotonic() - self._swept_at > 5.0:
            self._swept_at = time.monotonic()
            # No claim could be renewed while Redis was away, or be seen before this trainer
            # started.
            silent_seconds = self.settings.max_claim_silence_seconds
            if time.time() - self._redis_back_at > silent_seconds:
                self._count_redone(self._queue.sweep(silent_seconds).redone, "its owner was silent")
        return away_seconds

    def count_compute(self) -> None:
        """Every generator that has announced itself is allocated, joined or not, and was while its
        engine started.
        """
        members = self.publisher.members()
        now_seconds = time.monotonic()
        new = [member for member in members if member.name not in self._counted]
        self._counted.update(member.name for member in new)
        new_devices = [
            now_seconds - member.allocated_since for member in new for _ in range(self.devices_each)
        ]
        self._state.compute.tick(len(members) * self.devices_each, new_devices)

    def hand_over(self, state: PipelineState, waited_for: Collection[int]) -> None:
        """Let slow generators hand over groups that they would finish too late; arguments as
        `groups_to_move`.
        """
        able = [
            member for member in self.publisher.members() if member.joined and not member.draining
        ]
        snapshot = self._intake.snapshot
        outlook = self._pacing.outlook(
            sum(item.purpose is Purpose.TRAIN for item in snapshot.waiting.values())
        )
        # There must be another generator that takes a group over.
        if len(able) < 2 or outlook is None:
            return
        moves = groups_to_move(
            state.groups,
            snapshot.claims,
            {member.name: member.decode_tokens_per_second for member in able},
            outlook,
            step=state.step,
            floor=self._schedule.floor(state.step),
            max_staleness=self._schedule.max_staleness,
            waited_for=waited_for,
            now_seconds=time.time(),
        )
        requested = self._hand_overs.request(
            moves, self._state.ledger.outstanding, self.publisher.hand_over
        )
        for generator, sequences in requested.items():
            log.info(
                "a slow generator hands groups over", generator=generator, tasks=len(sequences)
            )
            self._reporter.mark(TaskMark("handed_over", generator=generator, tasks=sequences))

    @contextmanager
    def broadcasts_kept_away(self) -> Iterator[None]:
        """Broadcasts that would share GPUs with the learner's collectives go first, or wait for
        their end.
        """
        if not self.is_sharded_over_gpus:
            yield
            return
        started_at = time.monotonic()
        with self.publisher.kept_away(
            self._state.published.step, self.settings.acknowledge_timeout_seconds
        ):
            self._reporter.record_wait(time.monotonic() - started_at, "weights")
            yield

    def fence(self, generator: str, reason: str) -> None:
        """A generator was removed: others take its tasks.

        Waits for Redis until a stop is requested.
        """
        while not self.stop_requested():
            try:
                redispatch = self._queue.fence(generator, reason)
            except QueueAway:
                time.sleep(AWAY_RETRY_SECONDS)
                continue
            log.warning(
                "generator removed",
                generator=generator,
                reason=reason,
                redone=len(redispatch.redone),
            )
            has_left = reason == "left"
            words = f"{generator} left" if has_left else f"{generator} was removed: {reason}"
            note(self._state.folder, words, trouble=not has_left)
            self._count_redone(redispatch.redone, words)
            return

    def _count_redone(self, sequences: Iterable[int], reason: str) -> None:
        for sequence in sequences:
            if prompt_id := self._state.ledger.outstanding.get(sequence):
                self._reporter.count_group("redone", sequence, prompt_id, reason)
