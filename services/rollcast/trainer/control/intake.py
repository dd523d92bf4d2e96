"""Receives the groups that come back from the generators and compares them with the tasks that were
dispatched.

read --> of an evaluation --> OpenEvaluations, off the queue immediately
     --> of training -------> ready until the schedule puts it into a batch, in training until it is
                              settled
                              filtered, if those do not count towards a batch: until `take_filtered`
                              at the teacher, if an endpoint distils: until it has answered, then
                              ready
     --> unknown, twice ----> off the queue, counted
     --> lost version ------> off the queue, counted; the task is dispatched again
     --> defective ---------> buried with the reason, counted; the task is dispatched again, or dead
                              at the third
     --> unreadable --------> buried by the queue, counted; likewise

reconcile (before every decision): one snapshot of wire 1
     --> dead ones return their credit
     --> missing ones (Redis lost them) are dispatched again
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rollcast.recipe.staleness import Group
from rollcast.rollouts.base import MAX_FAILURES, Delivery, Outstanding, TrainerQueue
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.runfolder.records import TaskOutcome
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.episode_statistics import count_episodes
from rollcast.trainer.control.evaluation import OpenEvaluations
from rollcast.trainer.control.lost_episodes import LostEpisodes
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.control.teacher import TeacherClient, TeacherLogprobs

log = get_logger()


@dataclass(eq=False)
class Intake:
    """Rank 0's view of the tasks under way. Not thread-safe."""

    _state: TrainerState
    _queue: TrainerQueue
    _open_evaluations: OpenEvaluations
    _exporter: Exporter
    make_task: Callable[[int, str], PromptTask]
    """Makes a task of the ledger again, of its sequence and prompt id."""
    count_outcome: Callable[[TaskOutcome, int, str, str | None], None]
    """Counts the outcome of a task, by its sequence and prompt id, with the reason."""
    find_defect: Callable[[RolloutGroup, PromptTask], str | None]
    is_filtered: Callable[[RolloutGroup], bool] = lambda _: False
    """Whether a group counts towards no batch."""
    note_arrival: Callable[[RolloutGroup], None] = lambda _: None
    """Called with each group that may be trained on, or is held for an evaluation."""
    teacher: TeacherClient | None = None
    """Asked about every group that can go into a batch; None = no endpoint distils."""
    has_own_rollouts: bool = False
    """Whether rollouts of this incarnation's weights came: earlier ones do not show that an engine
    runs."""
    generated_tokens: dict[Purpose, int] = field(default_factory=lambda: dict.fromkeys(Purpose, 0))
    snapshot: Outstanding = field(default_factory=Outstanding)
    """Wire 1 as of the last reconciliation."""
    ready: dict[int, Delivery] = field(default_factory=dict)
    """Groups that can go into a batch, by task sequence."""
    _at_teacher: dict[int, Delivery] = field(default_factory=dict)
    """Groups that a teacher scores, by task sequence; not ready meanwhile."""
    _training: dict[int, Delivery] = field(default_factory=dict)
    """Groups of the newest batch, by task sequence; outstanding until they are settled."""
    _filtered: dict[int, Delivery] = field(default_factory=dict)
    _done: list[str] = field(default_factory=list)
    """Stream ids to be removed."""
    _refused: dict[str, str] = field(default_factory=dict)
    """Stream ids to be buried, with the reason."""
    _why_missing: dict[int, str] = field(default_factory=dict)
    """Tasks whose answer could not be used, with the reason, until `reconcile`."""

    def __post_init__(self) -> None:
        self._exporter.add(
            trainer_metrics.GROUPS, 0.0, outcome="defective"
        )  # a counter that begins at 1 would hide the first

        self._lost_episodes = LostEpisodes(self._state.folder)

    def _count_episodes(self, group: RolloutGroup) -> None:
        count_episodes(self._exporter, group)
        self._lost_episodes.note(group)

    def collect(self, block_seconds: float) -> None:
        """Read finished groups, waiting up to `block_seconds` for the first."""
        # Groups that one call to the queue returns. collect calls it until fewer come.
        max_groups_per_read = 64
        deliveries = self._queue.read(max_groups_per_read, block_seconds)
        for delivery in deliveries:
            self._route(delivery)
        while len(deliveries) == max_groups_per_read:
            deliveries = self._queue.read(max_groups_per_read, 0.0)
            for delivery in deliveries:
                self._route(delivery)
        if self.teacher is not None:
            for sequence in self.teacher.answered_sequences():
                # Others are ready already, and stay answered until a batch takes them.
                if sequence in self._at_teacher:
                    self.ready[sequence] = self._at_teacher.pop(sequence)

    def _route(self, delivery: Delivery) -> None:
        group = delivery.group
        tokens = group.num_tokens
        self.generated_tokens[group.purpose] += tokens
        self._exporter.add(trainer_metrics.TOKENS, tokens, role="generator")
        if group.purpose is Purpose.EVAL:
            # Tokens of training are consumed when their group is settled.
            self._exporter.add(trainer_metrics.CONSUMED_TOKENS, tokens)
        elif any(
            version.incarnation == self._state.history.incarnation for version in group.versions
        ):
            self.has_own_rollouts = True
        if task := self._open_evaluations.find_wanted_task(group.sequence):
            self._route_evaluation(delivery, task)
        else:
            self._route_training(delivery)

    def _route_training(self, delivery: Delivery) -> None:
        group = delivery.group
        sequence = group.sequence
        prompt_id = self._state.ledger.outstanding.get(sequence)
        # Used already, and kept on the queue until the next checkpoint.
        if self._state.ledger.held.get(sequence) == delivery.stream_id:
            return
        if prompt_id is None or sequence in self._settled:
            self._discard(delivery, "duplicate")
        # Compared with the dispatch that it names: another incarnation may have had other settings.
        elif defect := self.find_defect(
            group, self._state.ledger.own_task(group, self.make_task(sequence, prompt_id))
        ):
            self._refuse(delivery, defect)
            if self._state.ledger.refuse(sequence) == MAX_FAILURES:
                self._give_up(sequence, defect)
            else:
                self._why_missing[sequence] = defect
        elif not self._survives(group):
            self._why_missing[sequence] = "tokens of lost weights"
            self._discard(delivery, "lost_version")
        else:
            self._count_episodes(group)
            self.note_arrival(group)
            self._place_for(group)[sequence] = delivery

    @property
    def _settled(self) -> set[int]:
        """Task sequences that have a usable answer here."""
        return {*self.ready, *self._at_teacher, *self._filtered, *self._training}

    def _place_for(self, group: RolloutGroup) -> dict[int, Delivery]:
        """The place at which a group that answers its task waits."""
        if self.is_filtered(group):
            return self._filtered
        if self.teacher is not None and self.teacher.ask(group):
            return self._at_teacher
        return self.ready

    def _route_evaluation(self, delivery: Delivery, task: PromptTask) -> None:
        group = delivery.group
        if defect := self.find_defect(group, task):
            self._refuse(delivery, defect)
            if not self._open_evaluations.note_failures(group.sequence, task.attempt + 1):
                self._exporter.add(trainer_metrics.GROUPS, outcome="dead")
        elif not self._survives(group):
            self._discard(delivery, "lost_version")
        else:
            self._count_episodes(group)
            self._open_evaluations.add(group)
            self._done.append(delivery.stream_id)

    def _survives(self, group: RolloutGroup) -> bool:
        return all(map(self._state.history.survives, {group.first_version} | group.versions))

    def _refuse(self, delivery: Delivery, defect: str) -> None:
        group = delivery.group
        log.error("unusable group", task=group.sequence, generator=group.generator, defect=defect)
        self._refused[delivery.stream_id] = defect
        self._exporter.add(trainer_metrics.GROUPS, outcome="defective")

    def take_filtered(self) -> list[Delivery]:
        """Groups that came since the last call and count towards no batch.

        They stay outstanding until settled.
        """
        filtered_deliveries = list(self._filtered.values())
        self._filtered = {}
        return filtered_deliveries

    def _discard(self, delivery: Delivery, outcome: str) -> None:
        self._done.append(delivery.stream_id)
        self._exporter.add(trainer_metrics.GROUPS, outcome=outcome)

    def done_with(self, stream_ids: Iterable[str]) -> None:
        """Take settled groups off the queue at the next `remove_done`."""
        self._done.extend(stream_ids)

    def remove_done(self) -> None:
        """Remove settled groups from the queue, and bury the refused ones."""
        self._queue.remove(self._done)
        self._done.clear()
        self._queue.bury(self._refused)
        self._refused.clear()

    def queued_bytes(self) -> int:
        """Bytes of finished training groups in Redis, read or not, without those held for the next
        checkpoint.
        """
        finished = self.snapshot.finished.items()
        return sum(
            item.num_bytes for sequence, item in finished if sequence not in self._state.ledger.held
        )

    def reconcile(self) -> None:
        self.reconcile_evaluation()
        # Groups that are here already need no other answer, even if Redis has lost them.
        missing_sequences = self._state.ledger.missing(
            [*self.snapshot.sequences, *self.ready, *self._at_teacher, *self._training]
        )
        if missing_sequences:
            log.warning(
                "tasks without an answer that could be used are dispatched again",
                tasks=len(missing_sequences),
            )
            self._dispatch_again(missing_sequences)
        self._why_missing.clear()

    def reconcile_evaluation(self) -> None:
        """A new snapshot; dead tasks are buried, evaluation tasks
        that are missing are asked again.
        """
        # Before the snapshot, so that settled groups are not in it.
        self.remove_done()
        self.snapshot = self._queue.outstanding()
        if self.snapshot.dead:
            self._bury_dead()
        unanswered = self._open_evaluations.unanswered_tasks()
        if lost := unanswered.keys() - self.snapshot.sequences:
            log.warning(
                "evaluation tasks were missing from Redis and are asked again", tasks=len(lost)
            )
            self._queue.dispatch([unanswered[sequence] for sequence in sorted(lost)])

    def _bury_dead(self) -> None:
        """Tasks that failed too often are given up. Those with an unreadable answer are asked
        again.

        The purpose of a task is that of its dispatch, whatever the queue's record says.
        """
        settled = self._settled
        for sequence, dead in self.snapshot.dead.items():
            is_final = dead.attempt >= MAX_FAILURES
            event = "task given up" if is_final else "unusable answer"
            # Length of a reason in the log: it may quote text that another program wrote to Redis
            log.warning(event, task=sequence, reason=dead.reason[:500])
            if self._open_evaluations.find_wanted_task(sequence):
                if not self._open_evaluations.note_failures(sequence, dead.attempt):
                    self._exporter.add(trainer_metrics.GROUPS, outcome="dead")
            # A usable answer that came meanwhile counts.
            elif sequence in self._state.ledger.outstanding.keys() - settled:
                self._state.ledger.note_failures(sequence, dead.attempt)
                if is_final:
                    self._give_up(sequence, dead.reason)
                else:
                    self._why_missing[sequence] = dead.reason
        self._queue.retire(list(self.snapshot.dead))

    def _give_up(self, sequence: int, reason: str) -> None:
        self.count_outcome("dead", sequence, self._state.ledger.settle(sequence), reason)

    def _dispatch_again(self, sequences: Iterable[int]) -> None:
        tasks = [
            self.make_task(sequence, self._state.ledger.outstanding[sequence])
            for sequence in sequences
        ]
        for task in tasks:
            # Failures go with the task, so that the last one allowed is noticed wherever it
            # happens.
            task.attempt = self._state.ledger.refused.get(task.sequence, 0)
            self._state.ledger.note_dispatch(task)
        for sequence in self._queue.dispatch(tasks):
            reason = self._why_missing.get(sequence, "missing from Redis")
            prompt_id = self._state.ledger.outstanding[sequence]
            self.count_outcome("redone", sequence, prompt_id, reason)

    def groups(self) -> tuple[Group, ...]:
        """Every dispatched and unsettled training group, as the schedule sees it."""
        return tuple(self._group(sequence) for sequence in self._state.ledger.outstanding)

    def _group(self, sequence: int) -> Group:
        delivery_maps = (self.ready, self._at_teacher, self._training)
        if delivery := next(
            (deliveries[sequence] for deliveries in delivery_maps if sequence in deliveries), None
        ):
            return Group(sequence, delivery.group.first_version.step, ready=sequence in self.ready)
        snapshot = self.snapshot
        item = (
            snapshot.claims.get(sequence)
            or snapshot.waiting.get(sequence)
            or snapshot.finished.get(sequence)
        )
        first = item.first_version if item is not None else None
        # Not started, or by a lost version: then it will be started again.
        if first is None or not self._state.history.survives(first):
            return Group(sequence, None, ready=False)
        return Group(sequence, first.step, ready=False)

    def take(self, sequences: Iterable[int]) -> list[Delivery]:
        """The ready groups of a batch, in order. They stay outstanding until they are settled."""
        self._training = {sequence: self.ready.pop(sequence) for sequence in sequences}
        return list(self._training.values())

    @property
    def num_at_teacher(self) -> int:
        return len(self._at_teacher)

    def is_at_teacher(self, sequence: int) -> bool:
        return sequence in self._at_teacher

    def teacher_logprobs(self, sequences: Iterable[int]) -> dict[int, TeacherLogprobs] | None:
        """The teacher's answers on groups of a batch, once; a group that it was not asked about is
        absent.

        None = no endpoint distils.
        """
        if self.teacher is None:
            return None
        answers_by_sequence = {sequence: self.teacher.take(sequence) for sequence in sequences}
        return {
            sequence: answers
            for sequence, answers in answers_by_sequence.items()
            if answers is not None
        }

    def give_up(self, sequences: Sequence[int]) -> None:
        """Give up groups that can no longer be used in time; their prompts are dispatched again
        before new ones.
        """
        self._queue.retire(sequences)
        for sequence in sequences:
            if delivery := self.ready.pop(sequence, None) or self._at_teacher.pop(sequence, None):
                self._done.append(delivery.stream_id)
            if self.teacher is not None:
                self.teacher.forget(sequence)
            prompt_id = self._state.ledger.settle(sequence)
            self._state.ledger.owed.append(prompt_id)
            self.count_outcome("stale", sequence, prompt_id, None)
