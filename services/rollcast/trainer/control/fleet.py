"""What rank 0 does about its generators between decisions: counts them, and takes back tasks that are in no good hands.

    removed by the publisher -> fence      their tasks go on elsewhere at once
    claims nobody renews     -> sweep      owners that died without being members
    far longer than needed   -> overdue    dispatched again
    much slower than a peer  -> hand over  partial rollouts go on elsewhere

No generator is blamed for the time for which Redis was away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from rollcast.config.run import RunConfig
from rollcast.recipe.schedule import PipelineState, Schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import Purpose
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.hand_over import HandOvers, groups_to_move
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.reporting import Reporter
from rollcast.weights.sender.roster import Member

AWAY_RETRY_SECONDS = 0.5
"""Between two questions to a Redis that stays away."""
SWEEP_SECONDS = 5.0
"""Between two looks for claims that nobody renews."""
SILENT_HEARTBEATS = 3.0
"""Claims not renewed for so many heartbeat timeouts have no owner any more."""
log = get_logger()


class Fleet:
    """The generators, seen from the trainer. `fence` comes from the publisher's thread, all else from the main one."""

    def __init__(
        self,
        config: RunConfig,
        *,
        queue: TrainerQueue,
        ledger: Ledger,
        intake: Intake,
        pacing: Pacing,
        compute: ComputeLedger,
        reporter: Reporter,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._devices_each = config.generator.tensor_parallel
        self._silent_seconds = SILENT_HEARTBEATS * config.weights.heartbeat_timeout_seconds
        self._queue = queue
        self._ledger = ledger
        self._intake = intake
        self._pacing = pacing
        self._compute = compute
        self._reporter = reporter
        self._stop_requested = stop_requested
        self._hand_overs = HandOvers()
        self._counted: set[str] = set()
        self._swept_at = time.monotonic()
        self._away_seconds = queue.away_seconds
        self._redis_back_at = time.time()

    def watch(self, members: Sequence[Member]) -> float:
        """To be called every turn. Returns the seconds for which Redis was away since the last call."""
        away_seconds = self._note_outage()
        if not any(member.joined for member in members):
            self._reporter.no_generator()
        self.count_compute(members)
        self._pacing.observe_rates(member.decode_tokens_per_second for member in members)
        overdue = self._pacing.overdue(self._intake.snapshot.claims, time.time(), redis_back_at=self._redis_back_at)
        if overdue:
            log.warning("groups took longer than any working generator needs", tasks=overdue)
            self._count_redone(self._queue.redo(overdue, "overdue").redone)
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._sweep()
        return away_seconds

    def count_compute(self, members: Sequence[Member]) -> None:
        """Every generator that has announced itself is allocated, joined or not, and was while its engine started."""
        now = time.monotonic()
        new = [member for member in members if member.name not in self._counted]
        self._counted.update(member.name for member in new)
        new_devices = [now - member.allocated_since for member in new for _ in range(self._devices_each)]
        self._compute.tick(len(members) * self._devices_each, new_devices)

    def hand_over(
        self,
        members: Sequence[Member],
        schedule: Schedule,
        state: PipelineState,
        waited_for: Collection[int],
        ask: Callable[[str, Sequence[int]], bool],
    ) -> None:
        """Let slow generators hand over what they would finish too late. `ask`: as of `HandOvers.request`."""
        able = [member for member in members if member.joined and not member.draining]
        snapshot = self._intake.snapshot.of(Purpose.TRAIN)
        outlook = self._pacing.outlook(waiting=len(snapshot.waiting))
        if len(able) < 2 or outlook is None:
            return
        moves = groups_to_move(
            state.groups,
            snapshot.claims,
            {member.name: member.decode_tokens_per_second for member in able},
            outlook,
            step=state.step,
            floor=schedule.floor(state.step),
            lag=schedule.lag,
            waited_for=waited_for,
            now=time.time(),
        )
        for generator, sequences in self._hand_overs.request(moves, self._ledger.outstanding, ask).items():
            log.info("a slow generator hands groups over", generator=generator, tasks=len(sequences))
            self._reporter.mark("handed_over", generator=generator, tasks=sequences)

    def fence(self, generator: str, reason: str) -> None:
        """A generator was removed: its tasks go on elsewhere at once. Waits for Redis for as long as nobody stops."""
        while not self._stop_requested():
            try:
                taken = self._queue.fence(generator, reason)
            except QueueAway:
                time.sleep(AWAY_RETRY_SECONDS)
                continue
            log.warning("generator removed", generator=generator, reason=reason, redone=len(taken.redone))
            self._count_redone(taken.redone)
            return

    def _note_outage(self) -> float:
        away_seconds = self._queue.away_seconds - self._away_seconds
        self._away_seconds += away_seconds
        if away_seconds > 0:
            self._redis_back_at = time.time()
        return away_seconds

    def _sweep(self) -> None:
        """Tasks of owners that renew nothing: generators that died without being members of the weight group.

        Nobody could renew while Redis was away, or be heard before this trainer looked.
        """
        if time.time() - self._redis_back_at > self._silent_seconds:
            self._count_redone(self._queue.sweep(self._silent_seconds).redone)

    def _count_redone(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            if prompt_id := self._ledger.outstanding.get(sequence):
                self._reporter.count_group("redone", sequence, prompt_id)
