"""The training groups under way, from dispatch to settlement. The schedule decides, the ledger accounts.

dispatch -> (generators) -> collect -> decide: Wait(reason)
                                               Batch -> take -> (update) -> settle: used | filtered
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rollcast.config.recipe import Recipe
from rollcast.recipe.schedule import PipelineState, Schedule, WaitReason
from rollcast.rollouts.base import Delivery, TrainerQueue
from rollcast.rollouts.records import RolloutGroup
from rollcast.trainer.control.assembly import AssembledBatch, assemble
from rollcast.trainer.control.dispatch import Dispatcher
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """The groups of one step."""

    deliveries: list[Delivery]
    replaced: list[RolloutGroup]
    """Filtered on arrival since the batch before; settled already."""
    assembled: AssembledBatch
    """The training sequences of these groups."""

    @property
    def groups(self) -> list[RolloutGroup]:
        return [delivery.group for delivery in self.deliveries]


class GroupPipeline:
    """Rank 0's training groups. One thread."""

    def __init__(
        self,
        state: TrainerState,
        queue: TrainerQueue,
        reporter: Reporter,
        schedule: Schedule,
        dispatcher: Dispatcher,
        intake: Intake,
        pacing: Pacing,
        *,
        recipe: Recipe,
    ) -> None:
        self._state = state
        self._recipe = recipe
        self.schedule = schedule
        self.intake = intake
        self._dispatcher = dispatcher
        self._pacing = pacing
        self._queue = queue
        self._reporter = reporter
        self._replaced: list[RolloutGroup] = []
        self._straggler_seconds = 0.0
        self._last_step_at = time.monotonic()

    def collect(self, block_seconds: float = 0.0) -> None:
        """Read finished groups; those that count towards no batch return their credit immediately."""
        self.intake.collect(block_seconds)
        if self.intake.has_own_rollouts:
            self._state.compute.rollouts_came()
        filtered = self.intake.take_filtered()
        if filtered:
            groups = [delivery.group for delivery in filtered]
            self._dispatcher.observe(groups)
            self.settle(filtered, kept=frozenset())
            self._replaced += groups
            self._reporter.replaced(len(self._replaced))

    def wait(self, block_seconds: float, reason: WaitReason) -> None:
        """`collect`; the time that it took counts under `reason`, without that for which Redis was away."""
        started = time.monotonic()
        away_before = self._queue.away_seconds
        self.collect(block_seconds)
        away_seconds = self._queue.away_seconds - away_before
        seconds = max(0.0, time.monotonic() - started - away_seconds)
        if reason is WaitReason.STRAGGLER:  # the next step does not count it as its own
            self._straggler_seconds += seconds
        self._reporter.waited(seconds, reason)

    def reconcile(self, acknowledged: int | None) -> PipelineState:
        """Compare the ledger with Redis; returns what the schedule decides on.

        `acknowledged`: the oldest step that any generator may sample with, read before this call: a claim that is not
        seen yet counts as the oldest possible.
        """
        self.intake.reconcile()
        return PipelineState(
            step=self._state.progress.step,
            steps_since_start=self._state.steps_since_start,
            acknowledged=acknowledged,
            groups=self.intake.groups(),
            enough=self._pacing.enough(),
        )

    def give_up(self, sequences: Sequence[int]) -> None:
        """Give up groups that can no longer be used in time; their prompts are dispatched again before new ones."""
        self._state.ledger.owed.extend(self.intake.give_up(sequences))

    def dispatch(self, state: PipelineState) -> None:
        self._dispatcher.dispatch(self.schedule.dispatch(state), self.intake)

    @property
    def is_out_of_prompts(self) -> bool:
        """No prompt is left, and every group has come back."""
        ledger = self._state.ledger
        is_exhausted = self._state.curriculum.is_exhausted and not ledger.owed
        return is_exhausted and ledger.outstanding.keys() <= self.intake.ready.keys()

    def take(self, sequences: Sequence[int]) -> GroupBatch:
        """The batch that the schedule chose. It stays outstanding until it is settled."""
        deliveries = self.intake.take(sequences)
        groups = [delivery.group for delivery in deliveries]
        replaced = self._replaced
        self._replaced = []
        self._reporter.batch(groups, replaced)
        self._dispatcher.observe(groups)
        return GroupBatch(deliveries, replaced, assemble(groups, self._recipe))

    def settle(self, deliveries: Sequence[Delivery], kept: frozenset[int]) -> None:
        """Return the groups' credit. What a restart could still use stays on the queue until the next checkpoint."""
        progress = self._state.progress
        ledger = self._state.ledger
        for delivery in deliveries:
            group = delivery.group
            prompt_id = ledger.settle(group.sequence)
            is_used = group.sequence in kept
            if is_used:
                progress.uses[prompt_id] = progress.uses.get(prompt_id, 0) + 1
            self._reporter.settled("used" if is_used else "filtered", group)
            if all(self._state.is_in_checkpoint(version) for version in group.versions):
                ledger.held[group.sequence] = delivery.stream_id
            else:
                self.intake.done_with([delivery.stream_id])

    def note_step(self, batch: GroupBatch) -> float:
        """A step was made of this batch; returns how many steps the longest recent group lasted, over k - l."""
        now = time.monotonic()
        seconds = now - self._last_step_at - self._straggler_seconds
        self._pacing.step_made(seconds, [*batch.replaced, *batch.groups])
        self._last_step_at = now
        self._straggler_seconds = 0.0
        return self._pacing.longest_ratio()

    def report(self) -> None:
        """Bring the gauges up to date that change between steps."""
        self._reporter.serve(self.intake, self._queue)

    def retire_all(self) -> None:
        self._queue.retire(list(self._state.ledger.outstanding))

    def close(self) -> None:
        self._queue.close()
