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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rollcast.config.run import RunConfig
from rollcast.recipe.data_reuse import reduced
from rollcast.recipe.mixture import make_curriculum
from rollcast.recipe.schedule import Batch, State, Wait, WaitReason, make_schedule
from rollcast.rollouts.base import Delivery, TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import Purpose, RolloutGroup
from rollcast.runfolder import files
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.process_age import process_age_seconds
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.defects import defect
from rollcast.trainer.control.dispatch import Dispatcher, stored_sequence
from rollcast.trainer.control.evaluation import evaluation_plans
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import AWAY_RETRY_SECONDS, Fleet
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing, grading_seconds
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import PromptBook, TaskMaker, shares
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.ending import Ending
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.publisher import Publisher
from rollcast.wire.version import PolicyVersion

POLL_SECONDS = 0.05
FINAL_ACKNOWLEDGE_SECONDS = 60.0
log = get_logger()


@dataclass(slots=True)
class Books:
    """The prompts of the run, tokenised."""

    train: PromptBook
    held_out: PromptBook
    downstream: dict[str, PromptBook] = field(default_factory=dict)
    """By the label of their evaluations."""

    @property
    def skipped_too_long(self) -> int:
        """Prompts left out of any of them because they are longer than the recipe allows, or empty."""
        return sum(book.skipped_too_long for book in (self.train, self.held_out, *self.downstream.values()))


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
        self._turned_at = time.monotonic()
        self._queue = queue
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
        parts = shares(books.train, evaluation_plans(config)[0].weights)
        self._curriculum = make_curriculum(
            reduced(parts, recipe.unique_prompts, seed=config.seed),
            seed=config.seed,
            remove_at=recipe.no_positive_resampling,
        )
        if self._progress.curriculum is not None:
            self._curriculum.restore(self._progress.curriculum)
        self._compute = ComputeLedger(config.run_folder / files.COMPUTE)
        self._pacing = Pacing(
            lag=self._schedule.lag,
            groups_per_step=recipe.prompts_per_step,
            token_budget=recipe.max_completion_tokens,
            drop_after_budgets=config.trainer.drop_after_budgets,
            grading_seconds=grading_seconds(config),
        )
        self._reporter = Reporter(config, exporter, books.train, self._curriculum)
        self._ledger = self._restore_ledger()
        maker = TaskMaker(config, encode, incarnation)
        self._dispatcher = Dispatcher(
            config,
            curriculum=self._curriculum,
            prompts=books.train,
            maker=maker,
            ledger=self._ledger,
            queue=queue,
            reporter=self._reporter,
        )
        self._examiner = Examiner(
            config,
            incarnation=incarnation,
            held_out=books.held_out,
            downstream=books.downstream,
            maker=maker,
            ledger=self._ledger,
            queue=queue,
            compute=self._compute,
            progress=self._progress,
            reporter=self._reporter,
            send=self._dispatcher.send,
        )
        self._intake = Intake(
            queue,
            self._ledger,
            self._history,
            self._examiner.evaluator,
            exporter,
            make_task=self._dispatcher.train_task,
            count_outcome=self._reporter.count_group,
            find_defect=lambda group, task: defect(
                group,
                task,
                newest=PolicyVersion(incarnation, self._published_step),
                history=self._history,
                vocab_size=learners.vocab_size,
                max_length=config.model.max_length,
            ),
            is_filtered=(lambda group: not assemble([group], recipe).sequences) if recipe.refill_filtered else None,
        )
        self._refilled: list[RolloutGroup] = []
        """Filtered on arrival since the last batch: others take their place."""
        self._publisher = Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=incarnation,
            history=self._history.earlier,
            lm_head=recipe.lm_head,
            specs=learners.specs,
            device=ranks.device,
            exporter=exporter,
            on_removed=lambda generator, reason: self._fleet.fence(generator, reason),
        )
        self._fleet = Fleet(
            config,
            queue=queue,
            ledger=self._ledger,
            intake=self._intake,
            pacing=self._pacing,
            compute=self._compute,
            reporter=self._reporter,
            ask_hand_over=self._publisher.hand_over,
            stop_requested=lambda: self._stop_requested(),
        )
        self._straggler_seconds = 0.0
        self._published_step = self._progress.step
        self._last_step_at = time.monotonic()

    # Start

    def _restore_ledger(self) -> Ledger:
        """The checkpoint's ledger; what a lost history dispatched after it is taken off wire 1."""
        highest = stored_sequence(self._queue, self._config.run)
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
        self._compute.start(
            self._num_devices,
            self._progress.compute_state,
            allocated_seconds=process_age_seconds(),
            start_up=self._progress.start_up,
        )
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
        self._collect(0.0)
        self._serve()
        self._examiner.ask_if_due(at_start=self._steps_since_start == 0)
        state = self._state()
        while unusable := self._schedule.unusable(state):
            self._ledger.owed.extend(self._intake.give_up(unusable))
            state = self._state()
        self._dispatcher.dispatch(self._schedule.dispatch(state), self._intake)
        decision = self._schedule.next_batch(state)
        waited_for = decision.groups if isinstance(decision, Wait) else ()
        self._fleet.hand_over(self._publisher.members(), self._schedule, state, waited_for)
        match decision:
            case Wait(reason=reason):
                if reason is WaitReason.BATCH:  # a wait for weights does not say that no batch lies ready
                    self._is_out_of_prompts = self._dispatcher.is_exhausted and self._intake.all_ready
                self._wait(reason)
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

    def _collect(self, block_seconds: float) -> None:
        """Read what came; where filtered groups do not count towards a batch, return their credit at once."""
        self._intake.collect(block_seconds)
        if self._intake.generated_tokens[Purpose.TRAIN]:
            self._compute.rollouts_came()
        filtered = self._intake.take_filtered()
        if filtered:
            groups = [delivery.group for delivery in filtered]
            self._dispatcher.observe(groups)
            self._settle(filtered, kept=frozenset())
            self._refilled += groups
            self._reporter.refilled(len(self._refilled))

    @property
    def turned_at(self) -> float:
        """When the loop last came round (monotonic): what /healthz looks at."""
        return self._turned_at

    def _serve(self) -> None:
        """What has to go on whether or not a step can be made."""
        members = self._publisher.members()
        away_seconds = self._fleet.watch(members)
        joined = any(member.joined for member in members)
        self._examiner.close_finished(generators=joined, away_seconds=away_seconds)
        self._reporter.serve(self._compute, self._ledger, self._intake, self._queue)

    def _wait(self, reason: WaitReason) -> None:
        started, away = time.monotonic(), self._queue.away_seconds
        self._collect(POLL_SECONDS)
        seconds = max(0.0, time.monotonic() - started - (self._queue.away_seconds - away))
        if reason is WaitReason.STRAGGLER:
            self._straggler_seconds += seconds
        self._exporter.add(names.TRAINER_WAIT, seconds, **{"for": str(reason)})

    def _redis_away(self, error: QueueAway) -> None:
        """The queue waited for half a minute already; a stop is looked for, then it is asked again."""
        log.warning("Redis stays away; training waits for it", error=str(error))
        time.sleep(AWAY_RETRY_SECONDS)

    def _step(self, sequences: tuple[int, ...]) -> None:
        """One batch: t becomes t + 1, unless every group is filtered."""
        deliveries = self._intake.take(sequences)
        groups = [delivery.group for delivery in deliveries]
        taken, self._refilled = [*self._refilled, *groups], []
        self._reporter.batch(groups, taken, self._progress.step, self._schedule.lag)
        self._dispatcher.observe(groups)
        batch = assemble(groups, self._config.recipe)
        self._wait_for_broadcast()
        stats = self._learners.update(batch.sequences, self._meanwhile()) if batch.sequences else None
        if stats is None or not stats.applied:
            if stats is not None:
                self._reporter.update_skipped()
            self._settle(deliveries, kept=frozenset())
            return
        self._progress.step += 1
        self._steps_since_start += 1
        self._progress.trained_tokens += stats.tokens
        self._fleet.count_compute(self._publisher.members())
        # Inside a round of ppo-off-policy nothing is generated: publishing there serves evaluation alone.
        if self._schedule.publishes(self._progress.step) or self._examiner.is_due(at_start=False):
            self._publish()
        self._settle(deliveries, kept=batch.kept_groups)
        now = time.monotonic()
        self._pacing.step_made(now - self._last_step_at - self._straggler_seconds, taken)
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
                self._collect(0.0)
                self._dispatcher.dispatch(self._schedule.dispatch(self._state()), self._intake)
            except QueueAway:
                is_away = True

        return meanwhile

    def _settle(self, deliveries: Sequence[Delivery], kept: frozenset[int]) -> None:
        """Return the groups' credit. What a restart could still use stays on the queue until the next checkpoint."""
        for delivery in deliveries:
            group = delivery.group
            prompt_id = self._ledger.settle(group.sequence)
            used = group.sequence in kept
            if used:
                self._progress.uses[prompt_id] = self._progress.uses.get(prompt_id, 0) + 1
            self._reporter.settled("used" if used else "filtered", group)
            if all(self._in_checkpoint(version) for version in group.versions):
                self._ledger.held[group.sequence] = delivery.stream_id
            else:
                self._intake.done_with([delivery.stream_id])

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

    # Checkpoint and end

    def _checkpoint(self) -> None:
        """Weights, optimizer and progress first; only then are the held groups let go."""
        self._progress.incarnation = self._history.incarnation
        self._progress.earlier = [list(pair) for pair in self._history.earlier]
        self._progress.compute_state = dict(self._compute.state)
        self._progress.start_up = self._compute.total_start_up
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
        return self._is_out_of_prompts or self._examiner.stop_reason is not None

    def _finish(self) -> Ending:
        """Evaluate the final weights, write them down, export them."""
        if self._examiner.stop_reason is not None:
            self._reporter.stopped_early(self._progress.step, self._examiner.stop_reason)
        log.info("training ends", step=self._progress.step, device_hours=round(self._compute.total_state, 4))
        if self._published_step < self._progress.step:  # the budget ended inside a round
            self._publish()
        self._publisher.wait_acknowledged(self._progress.step, FINAL_ACKNOWLEDGE_SECONDS)
        self._queue.retire(list(self._ledger.outstanding))  # nobody will use them: the evaluation gets every slot
        self._examiner.ask_last()
        while self._examiner.pending and not self._stop_requested():
            self._turned_at = time.monotonic()
            self._collect(POLL_SECONDS)
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
