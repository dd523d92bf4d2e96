"""Rank 0's loop: it dispatches, waits, trains, publishes, evaluates and checkpoints; the schedule decides, it obeys.

    start: checkpoint? -> incarnation -> publish the weights -> retire what a lost history dispatched
    loop:  collect what came -> hold the ledger against wire 1 -> close evaluations
           -> dispatch what the schedule allows
           -> next_batch: Wait(reason)  collect again, the seconds count under the reason
                          Batch         step t -> t + 1: update, publish, settle, evaluate, checkpoint
    stop:  budget reached -> last evaluation -> checkpoint -> export -> Finished
           stop requested (SIGTERM) -> checkpoint -> Interrupted

The main thread does all of it. The publisher has threads of its own; it calls `fence` from one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import psutil

from rollcast.config.run import RunConfig
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.schedule import Batch, State, Wait, make_schedule
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import PromptTask, Purpose, RolloutGroup
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.assembly import assemble
from rollcast.trainer.batch import defect
from rollcast.trainer.compute import ComputeLedger
from rollcast.trainer.early_stop import EarlyStop
from rollcast.trainer.evaluation import Closed, Evaluator
from rollcast.trainer.group import LearnerGroup
from rollcast.trainer.hand_over import HandOvers, groups_to_move
from rollcast.trainer.history import SurvivingHistory
from rollcast.trainer.intake import Intake
from rollcast.trainer.ledger import Ledger
from rollcast.trainer.pacing import Pacing
from rollcast.trainer.progress import Progress
from rollcast.trainer.prompt_book import PromptBook, TaskMaker
from rollcast.trainer.ranks import Ranks
from rollcast.trainer.reporting import Reporter
from rollcast.weights.publisher import Publisher
from rollcast.weights.roster import Member
from rollcast.wire.version import PolicyVersion

POLL_SECONDS = 0.05
AWAY_RETRY_SECONDS = 0.5
FINAL_ACKNOWLEDGE_SECONDS = 60.0
SWEEP_SECONDS = 5.0
SILENT_HEARTBEATS = 3.0
"""Claims not renewed for so many heartbeat timeouts have no owner any more."""
NEXT_SEQUENCE = "next_sequence"
log = get_logger()


class Ending(StrEnum):
    """Why the loop ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Books:
    """The prompts of the run, tokenised."""

    train: PromptBook
    held_out: PromptBook


class Controller:
    """One incarnation of the trainer."""

    def __init__(
        self,
        config: RunConfig,
        *,
        learners: LearnerGroup,
        ranks: Ranks,
        queue: TrainerQueue,
        books: Books,
        encode: Callable[[str], list[int]],
        exporter: Exporter,
        progress: Progress | None,
        stop_requested: Callable[[], bool],
    ) -> None:
        """`progress`: of the checkpoint that `learners` were restored from; None starts a new run."""
        self._config = config
        self._learners = learners
        self._num_devices = ranks.num_devices
        self._on_gpu = ranks.device.type == "cuda"
        self._allocated_since = psutil.Process().create_time()
        self._turned_at = time.monotonic()
        self._queue = queue
        self._books = books
        self._exporter = exporter
        self._stop_requested = stop_requested
        recipe = config.recipe
        self._schedule = make_schedule(recipe.schedule, groups_per_step=recipe.prompts_per_step)
        self._progress = progress or Progress()
        self._checkpoint_version = PolicyVersion(self._progress.incarnation, self._progress.step if progress else -1)
        incarnation = queue.start_incarnation(self._progress.incarnation + 1)
        earlier = tuple((number, last) for number, last in self._progress.earlier)
        self._history = SurvivingHistory(earlier, incarnation)
        if progress is not None:
            before = SurvivingHistory(earlier, self._progress.incarnation)
            self._history = before.continued_by(incarnation, self._progress.step)
        self._steps_since_start = 0
        self._is_out_of_prompts = False
        self._is_serving = False
        self._curriculum = Curriculum(books.train.ids, seed=config.seed, remove_at=recipe.no_positive_resampling)
        if self._progress.curriculum is not None:
            self._curriculum.restore(self._progress.curriculum)
        self._maker = TaskMaker(config, encode, incarnation)
        self._evaluator = Evaluator(config.run, config.tasks.dataset.name, config.tasks.evaluation.deadline_seconds)
        self._early_stop = (
            EarlyStop(config.stop_when, config.budget, self._progress.curve) if config.stop_when else None
        )
        self._compute = ComputeLedger(config.run_folder / "compute.json")
        self._counted_generators: set[str] = set()
        self._pacing = Pacing(
            lag=self._schedule.lag,
            groups_per_step=recipe.prompts_per_step,
            token_budget=recipe.max_completion_tokens,
            drop_after_budgets=config.trainer.drop_after_budgets,
        )
        self._reporter = Reporter(config, exporter, books.train, self._curriculum)
        self._ledger = self._restore_ledger()
        self._intake = Intake(
            queue,
            self._ledger,
            self._history,
            self._evaluator,
            exporter,
            make_task=lambda sequence, prompt_id: self._maker.train(sequence, books.train[prompt_id]),
            count_outcome=self._reporter.count_group,
            find_defect=lambda group: defect(group, vocab_size=learners.vocab_size, max_length=config.model.max_length),
        )
        self._publisher = Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=incarnation,
            history=self._history.earlier,
            lm_head=recipe.lm_head,
            specs=learners.specs,
            device=ranks.device,
            exporter=exporter,
            on_removed=self.fence,
        )
        self._hand_overs = HandOvers(self._publisher.hand_over)
        self._straggler_seconds = 0.0
        self._published_step = self._progress.step
        self._swept_at = time.monotonic()
        self._away_seconds = queue.away_seconds
        self._redis_back_at = time.time()
        self._last_step_at = time.monotonic()

    # Start

    def _restore_ledger(self) -> Ledger:
        """The checkpoint's ledger; what a lost history dispatched after it is taken off wire 1."""
        highest = int(self._queue.get_state(NEXT_SEQUENCE) or 0)
        if self._progress.ledger is None:
            ledger = Ledger(next_sequence=highest)
        else:
            ledger = Ledger.restore(self._progress.ledger, at_least=highest)
        self._queue.settle(list(ledger.held.values()))
        ledger.held.clear()
        lost = self._queue.outstanding().sequences - ledger.outstanding.keys()
        if lost:
            log.info("tasks dispatched after the checkpoint are taken back", tasks=len(lost))
            self._queue.retire(sorted(lost))
        return ledger

    def start(self) -> int:
        """Serve generators and publish the current weights; returns the gRPC port."""
        port = self._publisher.start()
        self._is_serving = True
        self._compute.start(self._num_devices, self._progress.compute_state, since=self._allocated_since)
        self._publish()
        self._reporter.started(self._history, self._progress.step, self._schedule.lag)
        log.info("trainer ready", version=str(self.version), rpc_port=port)
        return port

    # The loop

    @property
    def version(self) -> PolicyVersion:
        return PolicyVersion(self._history.incarnation, self._progress.step)

    def run(self) -> Ending:
        """Train until the budget ends or a stop is requested. Redis being away is waited for."""
        while not self._stop_requested():
            try:
                if self._budget_reached():
                    return self._finish()
                self._turn()
            except QueueAway as error:
                self._redis_away(error)
        return self._interrupted()

    def _turn(self) -> None:
        self._turned_at = time.monotonic()
        self._intake.collect(0.0)
        self._serve()
        self._ask_evaluation_if_due()
        state = self._state()
        while unusable := self._schedule.unusable(state):
            self._ledger.owed.extend(self._intake.give_up(unusable))
            state = self._state()
        self._dispatch(self._schedule.dispatch(state))
        decision = self._schedule.next_batch(state)
        self._hand_over(state, waited_for=decision.groups if isinstance(decision, Wait) else ())
        match decision:
            case Wait(reason=reason):
                self._is_out_of_prompts = self._no_prompt_left() and all(group.ready for group in state.groups)
                self._wait(str(reason))
            case Batch(sequences=sequences):
                self._step(sequences)

    def _state(self) -> State:
        """Acknowledgements are read before the claims: a start that is not seen yet counts as the oldest possible."""
        acknowledged = self._publisher.lowest_step()
        self._intake.reconcile()
        return State(
            step=self._progress.step,
            steps_since_start=self._steps_since_start,
            acknowledged=acknowledged,
            groups=self._intake.groups(),
            enough=self._pacing.enough(),
        )

    def _hand_over(self, state: State, waited_for: Collection[int]) -> None:
        """Let slow generators hand over what they would finish too late."""
        members = [member for member in self._publisher.members() if member.joined and not member.draining]
        snapshot = self._intake.snapshot.of(Purpose.TRAIN)
        outlook = self._pacing.outlook(waiting=len(snapshot.waiting))
        if len(members) < 2 or outlook is None:
            return
        moves = groups_to_move(
            state.groups,
            snapshot.claims,
            {member.name: member.decode_tokens_per_second for member in members},
            outlook,
            step=state.step,
            floor=self._schedule.floor(state.step),
            lag=self._schedule.lag,
            waited_for=waited_for,
            now=time.time(),
        )
        for generator, sequences in self._hand_overs.request(moves, self._ledger.outstanding).items():
            log.info("a slow generator hands groups over", generator=generator, tasks=len(sequences))
            self._reporter.mark("handed_over", generator=generator, tasks=sequences)

    def _no_prompt_left(self) -> bool:
        return self._curriculum.num_removed == len(self._books.train) and not self._ledger.owed

    @property
    def turned_at(self) -> float:
        """When the loop last came round (monotonic): what /healthz looks at."""
        return self._turned_at

    def _serve(self) -> None:
        """What has to go on whether or not a step can be made."""
        away_seconds = self._note_outage()
        members = self._publisher.members()
        if not any(member.joined for member in members):
            self._reporter.no_generator()
        self._tick_compute(members)
        self._pacing.observe_rates(member.decode_tokens_per_second for member in members)
        joined = any(member.joined for member in members)
        for closed in self._evaluator.close_finished(generators=joined, away_seconds=away_seconds):
            self._close_evaluation(closed)
        overdue = self._pacing.overdue(self._intake.snapshot.claims, time.time(), redis_back_at=self._redis_back_at)
        if overdue:
            log.warning("groups took longer than any working generator needs", tasks=overdue)
            self._count_redone(self._queue.redo(overdue, "overdue").redone)
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._sweep()
        self._reporter.serve(self._compute, self._ledger, self._intake, self._queue)

    def _note_outage(self) -> float:
        """Seconds for which Redis was away since the last call."""
        away_seconds = self._queue.away_seconds - self._away_seconds
        self._away_seconds += away_seconds
        if away_seconds > 0:
            self._redis_back_at = time.time()
        return away_seconds

    def _sweep(self) -> None:
        """Tasks of owners that renew nothing: generators that died without being members of the weight group.

        Nobody could renew while Redis was away, or be heard before this trainer looked.
        """
        silent = SILENT_HEARTBEATS * self._config.weights.heartbeat_timeout_seconds
        if time.time() - self._redis_back_at > silent:
            self._count_redone(self._queue.sweep(silent).redone)

    def _tick_compute(self, members: Sequence[Member]) -> None:
        """Every generator that has announced itself is allocated, joined or not, and was while its engine started."""
        each, now = self._config.generator.tensor_parallel, time.monotonic()
        new = [member for member in members if member.name not in self._counted_generators]
        self._counted_generators.update(member.name for member in new)
        new_devices = [now - member.allocated_since for member in new for _ in range(each)]
        self._compute.tick(len(members) * each, new_devices)

    def _wait(self, reason: str) -> None:
        started, away = time.monotonic(), self._queue.away_seconds
        self._intake.collect(POLL_SECONDS)
        seconds = max(0.0, time.monotonic() - started - (self._queue.away_seconds - away))
        if reason == "straggler":
            self._straggler_seconds += seconds
        self._exporter.add(names.TRAINER_WAIT, seconds, **{"for": reason})

    def _redis_away(self, error: QueueAway) -> None:
        """The queue waited for half a minute already; a stop is looked for, then it is asked again."""
        log.warning("Redis stays away; training waits for it", error=str(error))
        time.sleep(AWAY_RETRY_SECONDS)

    def _dispatch(self, count: int) -> None:
        """Dispatch up to `count` prompts, owed ones first; one batch always may, however full the queue is.

        So may all while nothing is under way: only a step empties the queue then, and the schedule may wait for these.
        """
        queued, limit = self._intake.queued_bytes(), self._config.redis.max_bytes
        outstanding = len(self._ledger.outstanding)
        under_way = outstanding > max(len(self._intake.ready), self._config.recipe.prompts_per_step - 1)
        if count and queued > limit and under_way:
            self._reporter.back_pressure(queued, limit)
            return
        owed = self._ledger.take_owed(count)
        drawn = (self._curriculum.draw() for _ in range(count - len(owed)))
        self._dispatch_prompts([*owed, *(prompt_id for prompt_id in drawn if prompt_id is not None)])

    def _dispatch_prompts(self, prompt_ids: Sequence[str]) -> None:
        tasks = [
            self._maker.train(self._ledger.dispatch(prompt_id), self._books.train[prompt_id])
            for prompt_id in prompt_ids
        ]
        self._reporter.count_dispatched(tasks)
        self._send(tasks)

    def _send(self, tasks: Sequence[PromptTask]) -> None:
        """What an outage keeps from being sent is missing at the next reconciliation, and sent then."""
        if tasks:
            with suppress(QueueAway):
                self._queue.set_state(NEXT_SEQUENCE, str(self._ledger.next_sequence).encode())
                self._queue.dispatch(tasks)

    def _step(self, sequences: tuple[int, ...]) -> None:
        """One batch: t becomes t + 1, unless every group is filtered."""
        deliveries = self._intake.take(sequences)
        groups = [delivery.group for delivery in deliveries]
        self._reporter.batch(groups, self._progress.step, self._schedule.lag)
        self._observe(groups)
        batch = assemble(groups, self._config.recipe)
        stream_ids = {delivery.group.sequence: delivery.stream_id for delivery in deliveries}
        self._wait_for_broadcast()
        stats = self._learners.update(batch.sequences, self._meanwhile()) if batch.sequences else None
        if stats is None or not stats.applied:
            if stats is not None:
                self._reporter.update_skipped()
            self._settle(groups, stream_ids, kept=frozenset())
            return
        self._progress.step += 1
        self._steps_since_start += 1
        self._progress.trained_tokens += stats.tokens
        self._tick_compute(self._publisher.members())
        if self._schedule.publishes(self._progress.step):
            self._publish()
        self._settle(groups, stream_ids, kept=batch.kept_groups)
        now = time.monotonic()
        self._pacing.step_made(now - self._last_step_at - self._straggler_seconds, groups)
        self._last_step_at, self._straggler_seconds = now, 0.0
        self._reporter.step(self._progress, stats, self._pacing.longest_ratio())
        if self._progress.step % self._config.trainer.checkpoint_every_steps == 0:
            self._checkpoint()

    def _wait_for_broadcast(self) -> None:
        """Where a broadcast would share GPUs with the update's collectives it goes first, unless the run says else."""
        if self._num_devices == 1 or not self._on_gpu or self._config.weights.overlap_training:
            return
        started = time.monotonic()
        self._publisher.wait_acknowledged(self._published_step, self._config.weights.acknowledge_timeout_seconds)
        self._exporter.add(names.TRAINER_WAIT, time.monotonic() - started, **{"for": "weights"})

    def _meanwhile(self) -> Callable[[], None]:
        """To be called between micro-batches of one update.

        A long update must not hold back what the window allows as groups come in and weights are acknowledged; and
        Redis being away must not hold back the update.
        """
        is_away = False

        def meanwhile() -> None:
            nonlocal is_away
            self._turned_at = time.monotonic()
            if is_away:
                return
            try:
                self._intake.collect(0.0)
                self._dispatch(self._schedule.dispatch(self._state()))
            except QueueAway:
                is_away = True

        return meanwhile

    def _observe(self, groups: list[RolloutGroup]) -> None:
        for group in groups:
            graded = [r for r in group.rollouts if r.grading_status in ("ok", "wrong")]
            correct = sum(rollout.reward > 0 for rollout in graded)
            self._curriculum.observe(group.prompt_id, correct=correct, graded=len(graded))

    def _settle(self, groups: list[RolloutGroup], stream_ids: dict[int, str], kept: frozenset[int]) -> None:
        """Return the batch's credit. What a restart could still use stays on the queue until the next checkpoint."""
        for group in groups:
            prompt_id = self._ledger.settle(group.sequence)
            used = group.sequence in kept
            if used:
                self._progress.uses[prompt_id] = self._progress.uses.get(prompt_id, 0) + 1
            self._reporter.settled("used" if used else "filtered", group)
            if all(self._in_checkpoint(version) for version in group.versions):
                self._ledger.held[group.sequence] = stream_ids[group.sequence]
            else:
                self._intake.done_with([stream_ids[group.sequence]])

    def _in_checkpoint(self, version: PolicyVersion) -> bool:
        """Whether the newest checkpoint's weights descend from `version`."""
        if version.incarnation == self._history.incarnation:
            current = self._checkpoint_version.incarnation == self._history.incarnation
            return current and version.step <= self._checkpoint_version.step
        return self._history.survives(version)

    def _publish(self) -> None:
        snapshot = self._publisher.stage()
        self._learners.gather(snapshot)
        self._publisher.publish(snapshot, self.version)
        self._published_step = self._progress.step

    def fence(self, generator: str, reason: str) -> None:
        """A generator was removed: its tasks go on elsewhere at once. Called from the publisher's control thread."""
        while not self._stop_requested():
            try:
                taken = self._queue.fence(generator, reason)
            except QueueAway:
                time.sleep(AWAY_RETRY_SECONDS)
                continue
            log.warning("generator removed", generator=generator, reason=reason, redone=len(taken.redone))
            self._count_redone(taken.redone)
            return

    def _count_redone(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            if prompt_id := self._ledger.outstanding.get(sequence):
                self._reporter.count_group("redone", sequence, prompt_id)

    # Evaluation

    def _ask_evaluation_if_due(self) -> None:
        """At every N-th step; at the start also where a restart lost the answers to the last one."""
        step, every = self._progress.step, self._config.tasks.evaluation.every_steps
        lost = self._steps_since_start == 0 and self._progress.evaluated_step < step - step % every
        if (step % every == 0 or lost) and max(self._evaluator.asked_step, self._progress.evaluated_step) < step:
            self._ask_evaluation()

    def _ask_evaluation(self) -> None:
        step, held_out = self._progress.step, self._books.held_out
        tasks = [
            self._maker.evaluation(self._ledger.take_sequence(), held_out[prompt_id], step)
            for prompt_id in held_out.ids
        ]
        self._evaluator.ask(
            step=step,
            incarnation=self._history.incarnation,
            compute=self._compute.total_state,
            trained_tokens=self._progress.trained_tokens,
            tasks=tasks,
        )
        self._send(tasks)

    def _close_evaluation(self, closed: Closed) -> None:
        self._progress.evaluated_step = max(self._progress.evaluated_step, closed.step)
        if closed.evaluation is None:
            self._reporter.evaluation_lost(closed.step)
        else:
            self._reporter.evaluation(closed.evaluation)
            if self._early_stop is not None:
                self._early_stop.observe(closed.evaluation)
        self._queue.retire(closed.unanswered)

    # Checkpoint and end

    def _checkpoint(self) -> None:
        """Weights, optimizer and progress first; only then are the held groups let go."""
        self._progress.incarnation = self._history.incarnation
        self._progress.earlier = [list(pair) for pair in self._history.earlier]
        self._progress.compute_state = dict(self._compute.state)
        self._progress.ledger = self._ledger.state()
        self._progress.curriculum = self._curriculum.state()
        started = time.monotonic()
        self._learners.save(self.version, self._progress.as_json())
        self._checkpoint_version = self.version
        self._reporter.checkpoint(self.version, time.monotonic() - started)
        self._compute.save()
        self._intake.done_with(self._ledger.held.values())
        self._ledger.held.clear()

    def _budget_reached(self) -> bool:
        budget = self._config.budget
        if budget.steps is not None and self._progress.step >= budget.steps:
            return True
        if budget.device_hours is not None and self._compute.total_state >= budget.device_hours:
            return True
        return self._is_out_of_prompts or self._stops_early()

    def _stops_early(self) -> bool:
        return self._early_stop is not None and self._early_stop.reason is not None

    def _finish(self) -> Ending:
        """Evaluate the final weights, write them down, export them."""
        if self._early_stop is not None and self._early_stop.reason is not None:
            self._reporter.stopped_early(self._progress.step, self._early_stop.reason)
        log.info("training ends", step=self._progress.step, device_hours=round(self._compute.total_state, 4))
        self._publisher.wait_acknowledged(self._progress.step, FINAL_ACKNOWLEDGE_SECONDS)
        self._queue.retire(list(self._ledger.outstanding))  # nobody will use them: the evaluation gets every slot
        if self._progress.evaluated_step < self._progress.step and self._evaluator.asked_step < self._progress.step:
            self._ask_evaluation()
        while self._evaluator.pending and not self._stop_requested():
            self._turned_at = time.monotonic()
            self._intake.collect(POLL_SECONDS)
            self._intake.reconcile_evaluation()
            self._serve()
        self._checkpoint()
        self._intake.acknowledge()
        if self._stop_requested():
            return Ending.INTERRUPTED
        self._learners.export(self._config.run_folder / "model")
        self._compute.save(stopped=True)
        return Ending.FINISHED

    def _interrupted(self) -> Ending:
        with suppress(QueueAway):
            self._checkpoint()
            self._intake.acknowledge()
        return Ending.INTERRUPTED

    def close(self) -> None:
        """Let go of generators and Redis."""
        if self._is_serving:
            self._publisher.stop(deadline_seconds=10.0)
        self._queue.close()
