"""The training groups under way, from dispatch to settlement. The schedule decides, the ledger
accounts.

dispatch -> (generators) -> collect -> decide: Wait(reason)
                                               Batch -> take -> (update) -> settle: used | filtered

dispatch: owed prompts, then new draws -> rollouts allocated -> entered in the ledger -> sent
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rollcast.config.recipe import Recipe
from rollcast.recipe.allocation import allocated_rollouts
from rollcast.recipe.schedule import PipelineState, Schedule, Wait, WaitReason
from rollcast.rollouts.base import Delivery, TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import PromptTask, RolloutGroup
from rollcast.trainer.control.assembly import AssembledBatch, assemble
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.pass_rate import verdicts
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import NEXT_SEQUENCE, TrainerState
from rollcast.trainer.control.teacher import TeacherLogprobs


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """The groups of one step."""

    deliveries: list[Delivery]
    replaced_groups: list[RolloutGroup]
    """Filtered on arrival since the batch before; settled already."""
    assembled: AssembledBatch
    """The training sequences of these groups."""
    teacher: dict[int, TeacherLogprobs] | None = None
    """An endpoint's answers, by task sequence. None = no endpoint distils."""


@dataclass(eq=False)
class GroupPipeline:
    """Rank 0's training groups. One thread."""

    _state: TrainerState
    _queue: TrainerQueue
    _reporter: Reporter
    schedule: Schedule
    intake: Intake
    _pacing: Pacing
    _make_task: Callable[[int, str], PromptTask]
    """Makes the task of a dispatch number and a prompt, as in `Intake`."""
    _recipe: Recipe
    _max_bytes: int
    """Bytes of finished groups in Redis; above it nothing is dispatched."""
    _group_filter: GroupFilter
    """The recipe's filter, the same one as for groups that come back."""
    _replaced_groups: list[RolloutGroup] = field(default_factory=list)
    _straggler_seconds: float = 0.0
    _last_step_at: float = field(default_factory=time.monotonic)

    def collect(self, block_seconds: float = 0.0) -> None:
        """Read finished groups; those that count towards no batch return their credit
        immediately.
        """
        self.intake.collect(block_seconds)
        if self.intake.has_own_rollouts:
            self._state.compute.rollouts_came()
        filtered = self.intake.take_filtered()
        if filtered:
            groups = [delivery.group for delivery in filtered]
            self.observe(groups)
            self.settle(filtered, kept_sequences=frozenset())
            self._replaced_groups += groups
            self._reporter.note_replaced_groups(len(self._replaced_groups))

    def wait(self, block_seconds: float, reason: WaitReason) -> None:
        """`collect`; the time that it took counts under `reason`, without that for which Redis was
        away.
        """
        started_at = time.monotonic()
        away_before = self._queue.away_seconds
        self.collect(block_seconds)
        away_seconds = self._queue.away_seconds - away_before
        seconds = max(0.0, time.monotonic() - started_at - away_seconds)
        if reason in (
            WaitReason.STRAGGLER,
            WaitReason.TEACHER,
        ):  # the next step does not count it as its own
            self._straggler_seconds += seconds
        self._reporter.record_wait(seconds, reason)

    def reason(self, wait: Wait) -> WaitReason:
        """Why the trainer waits: for the teacher, if the schedule lacks only groups
        that are there.
        """
        num_at_teacher = self.intake.num_at_teacher
        match wait.reason:
            case WaitReason.STRAGGLER:
                is_teachers = all(map(self.intake.is_at_teacher, wait.groups))
            case WaitReason.BATCH:
                num_answered = len(self.intake.ready) + num_at_teacher
                is_teachers = num_at_teacher > 0 and num_answered >= self._recipe.prompts_per_step
            case _:
                is_teachers = False
        return WaitReason.TEACHER if is_teachers else wait.reason

    def reconcile(self, acknowledged: int | None) -> PipelineState:
        """Compare the ledger with Redis; returns what the schedule decides on.

        `acknowledged`: the oldest step that any generator may sample with, read before this call: a
        claim that is not seen yet counts as the oldest possible.
        """
        self.intake.reconcile()
        return PipelineState(
            step=self._state.progress.step,
            steps_since_start=self._state.steps_since_start,
            acknowledged=acknowledged,
            groups=self.intake.groups(),
            enough=self._pacing.enough(),
        )

    def dispatch(self, count: int) -> None:
        """Dispatch up to `count` prompts, owed ones first; one batch always may, however full the
        queue is.

        So may all while nothing is under way: only a step empties the queue then, and the schedule
        may wait for these.
        """
        queued_bytes = self.intake.queued_bytes()
        ledger = self._state.ledger
        curriculum = self._state.curriculum
        num_outstanding = len(ledger.outstanding)
        is_any_under_way = num_outstanding > max(
            len(self.intake.ready), self._recipe.prompts_per_step - 1
        )
        if count and queued_bytes > self._max_bytes and is_any_under_way:
            self._reporter.back_pressure(queued_bytes)
            return
        owed = ledger.take_owed(count)
        drawn = (curriculum.draw() for _ in range(count - len(owed)))
        # A curriculum that is exhausted draws None.
        prompt_ids = [*owed, *(prompt_id for prompt_id in drawn if prompt_id is not None)]
        numbers = allocated_rollouts(
            self._recipe, [curriculum.counts(prompt_id) for prompt_id in prompt_ids]
        )
        tasks = [
            self._make_task(ledger.dispatch(prompt_id, number), prompt_id)
            for prompt_id, number in zip(prompt_ids, numbers, strict=True)
        ]
        for task in tasks:
            # Before it is sent, because an answer is compared with the note.
            ledger.note_dispatch(task)
        self._reporter.count_dispatched(tasks)
        self.send(tasks)

    def send(self, tasks: Sequence[PromptTask]) -> None:
        """Tasks of either purpose. Those that an outage keeps from being sent are missing at the
        next reconciliation, and sent then."""
        if tasks:
            with suppress(QueueAway):
                # Before the tasks, so that no sequence is given out twice, whatever is lost after
                # this line.
                self._queue.set_state(NEXT_SEQUENCE, str(self._state.ledger.next_sequence).encode())
                self._queue.dispatch(tasks)

    def observe(self, groups: Iterable[RolloutGroup]) -> None:
        """Every training group that came back counts in its prompt's history, filtered or not; once
        each.
        """
        for group in groups:
            rewards = verdicts(group.rollouts)
            self._state.curriculum.observe(
                group.prompt_id,
                reward=sum(rewards),
                graded=len(rewards),
                sampled=len(group.rollouts),
            )

    @property
    def is_out_of_prompts(self) -> bool:
        """No prompt is left, and every group has come back."""
        is_exhausted = self._state.curriculum.is_exhausted and not self._state.ledger.owed
        return is_exhausted and self._state.ledger.outstanding.keys() <= self.intake.ready.keys()

    def take(self, sequences: Sequence[int]) -> GroupBatch:
        """The batch that the schedule chose. It stays outstanding until it is settled."""
        deliveries = self.intake.take(sequences)
        groups = [delivery.group for delivery in deliveries]
        replaced_groups = self._replaced_groups
        self._replaced_groups = []
        self._reporter.batch(groups, replaced_groups)
        # Replaced groups were observed when they came.
        self.observe(groups)
        teacher = self.intake.teacher_logprobs(sequences)
        assembled = assemble(groups, self._recipe, teacher, self._group_filter)
        return GroupBatch(deliveries, replaced_groups, assembled, teacher)

    def find_task(self, group: RolloutGroup) -> PromptTask:
        """The task that a group of the batch answers, as it was dispatched."""
        task = self._make_task(group.sequence, group.prompt_id)
        # The ledger keeps no messages and no answer of an episode's task.
        return replace(self._state.ledger.own_task(group, task), episode=task.episode)

    def settle(self, deliveries: Sequence[Delivery], kept_sequences: frozenset[int]) -> None:
        """Return the groups' credit.

        What a restart could still use stays on the queue until the next checkpoint.
        """
        progress = self._state.progress
        for delivery in deliveries:
            group = delivery.group
            prompt_id = self._state.ledger.settle(group.sequence)
            is_used = group.sequence in kept_sequences
            if is_used:
                progress.uses[prompt_id] = progress.uses.get(prompt_id, 0) + 1
            self._reporter.record_group_outcome("used" if is_used else "filtered", group)
            # After a restart from the checkpoint such a group could be used again: all of its
            # tokens survive.
            if all(self._state.is_in_checkpoint(version) for version in group.versions):
                self._state.ledger.held[group.sequence] = delivery.stream_id
            else:
                self.intake.done_with([delivery.stream_id])

    def note_step(self, batch: GroupBatch) -> float:
        """A step was made of this batch; returns how many steps the longest recent group lasted,
        over k - l.
        """
        now_seconds = time.monotonic()
        seconds = now_seconds - self._last_step_at - self._straggler_seconds
        self._pacing.step_made(
            seconds, [*batch.replaced_groups, *(delivery.group for delivery in batch.deliveries)]
        )
        self._last_step_at = now_seconds
        self._straggler_seconds = 0.0
        return self._pacing.longest_ratio()

    def report(self) -> None:
        """Bring the gauges up to date that change between steps."""
        self._reporter.serve(self.intake, self._queue)

    def retire_all(self) -> None:
        self._queue.retire(list(self._state.ledger.outstanding))

    def close(self) -> None:
        try:
            if self.intake.teacher is not None:
                self.intake.teacher.close()
        finally:
            self._queue.close()
