"""Rank 0's loop: it dispatches, waits, trains, publishes, evaluates and checkpoints; the schedule
decides.

    start: publish the weights of the checkpoint, or of the model
    loop:  read finished groups -> close evaluations -> reconcile the ledger with Redis
           -> dispatch what the schedule allows
           -> next_batch: Wait(reason)  read groups again, the seconds count under the reason
                          Batch         step t -> t + 1: update, publish, settle, evaluate,
                                        checkpoint
    stop:  budget reached -> last evaluation -> checkpoint -> export -> Finished
           stop requested (SIGTERM) -> checkpoint -> Interrupted

The main thread does all of it. The publisher has threads of its own; it calls `Fleet.fence` from
one of them.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from rollcast.config.errors import UserError, WrongNumbersError
from rollcast.recipe.schedule import Batch, PipelineState, Wait, WaitReason
from rollcast.rollouts.errors import QueueAway
from rollcast.runfolder import files
from rollcast.runfolder.folder import mark_format
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.process_age import process_age_seconds
from rollcast.trainer.control.checkpoints import Checkpoints
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import AWAY_RETRY_SECONDS, Fleet
from rollcast.trainer.control.number_guard import NumberGuard
from rollcast.trainer.control.pipeline import GroupBatch, GroupPipeline
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.recorder.step_recorder import StepRecorder

POLL_SECONDS = 0.05
"""How long one poll for groups may block. Also bounds how late acknowledgements and a stop request
are noticed."""
log = get_logger()


@dataclass(eq=False)
class Controller:
    """One incarnation of the trainer. `build_controller` makes it."""

    state: TrainerState
    _pipeline: GroupPipeline
    _examiner: Examiner
    _fleet: Fleet
    _checkpoints: Checkpoints
    _learners: LearnerGroup
    _reporter: Reporter
    _numbers: NumberGuard
    _stop_requested: Callable[[], bool]
    _recorder: StepRecorder | None
    """None = `record` is off."""
    _is_out_of_prompts: bool = False
    _is_serving: bool = False

    def __post_init__(self) -> None:
        self._publisher = self._fleet.publisher

    # Start

    def start(self) -> int:
        """Serve generators and publish the current weights; returns the gRPC port.

        Raises UserError if they are not finite.
        """
        mark_format(self.state.folder)
        port = self._publisher.start()
        self._is_serving = True
        self.state.compute.start(
            self._learners.ranks.num_devices,
            self.state.progress.compute_state,
            allocated_seconds=process_age_seconds(),
            start_up=self.state.progress.start_up,
        )
        try:
            self._publish()
        except WrongNumbersError as error:
            # Those of a checkpoint were looked at when it was read.
            raise UserError(
                "model.path: the model's weights are not finite; name a model whose weights are"
            ) from error
        self._reporter.record_start()
        log.info("trainer ready", version=str(self.state.version), rpc_port=port)
        return port

    # The loop

    def run(self) -> TrainerEnding:
        """Train until the budget ends or a stop is requested; while Redis is away, wait.

        Raises WrongNumbersError or FailedAgainError (`NumberGuard`).
        """
        try:
            return self._train()
        except WrongNumbersError as error:
            raise self._numbers.judge(error) from error

    def _train(self) -> TrainerEnding:
        while not self._stop_requested():
            try:
                if self._has_ended():
                    return self._finish()
                self._step_or_wait()
            except QueueAway as error:  # the queue has retried for half a minute already
                log.warning("Redis stays away; training waits for it", error=str(error))
                time.sleep(AWAY_RETRY_SECONDS)
        # Redis is asked only after the checkpoint is on the disk.
        with suppress(QueueAway):
            self._write_last_checkpoint()
        return TrainerEnding.INTERRUPTED

    def _has_ended(self) -> bool:
        return (
            self.state.is_budget_spent
            or self._is_out_of_prompts
            or self._examiner.stop_reason is not None
        )

    def _step_or_wait(self) -> None:
        self.state.last_round_at = time.monotonic()
        self._checkpoints.release_if_written()
        self._pipeline.collect()
        self._watch()
        self._examiner.ask_if_due(at_start=self.state.steps_since_start == 0)
        pipeline_state = self._reconcile()
        # Until none is: giving groups up changes the state that the schedule decides on.
        while unusable := self._pipeline.schedule.unusable(pipeline_state):
            self._pipeline.intake.give_up(unusable)
            pipeline_state = self._reconcile()
        self._pipeline.dispatch(self._pipeline.schedule.dispatch(pipeline_state))
        decision = self._pipeline.schedule.next_batch(pipeline_state)
        waited_for = decision.groups if isinstance(decision, Wait) else ()
        self._fleet.hand_over(pipeline_state, waited_for)
        match decision:
            case Wait() as wait:
                if (
                    wait.reason is WaitReason.BATCH
                ):  # a wait for weights does not mean that no batch is ready
                    self._is_out_of_prompts = self._pipeline.is_out_of_prompts
                self._pipeline.wait(POLL_SECONDS, self._pipeline.reason(wait))
            case Batch(sequences=sequences):
                self._step(sequences)

    def _watch(self) -> None:
        """Work that goes on whether or not a step can be made."""
        away_seconds = self._fleet.watch()
        self._examiner.close_finished(generators=self._fleet.has_joined, away_seconds=away_seconds)
        self._pipeline.report()

    def _reconcile(self) -> PipelineState:
        # The step is read before the queue: a claim that is not seen yet then counts as the oldest
        # possible.
        return self._pipeline.reconcile(acknowledged=self._publisher.lowest_step())

    # One step

    def _step(self, sequences: tuple[int, ...]) -> None:
        """One batch: t becomes t + 1, unless every group is filtered."""
        progress = self.state.progress
        batch = self._pipeline.take(sequences)
        stats = self._update(batch)
        if stats is None:
            self._pipeline.settle(batch.deliveries, kept_sequences=frozenset())
            return
        progress.step += 1
        progress.trained_tokens += stats.tokens
        self.state.steps_since_start += 1
        self._fleet.count_compute()
        # Inside a round of ppo-off-policy nothing is generated: publishing there serves evaluation
        # alone.
        if self._pipeline.schedule.publishes(progress.step) or self._examiner.is_due(
            at_start=False
        ):
            self._publish()
        # Not earlier: returned credit would let groups start with older weights on top of those
        # under way (staleness.py).
        self._pipeline.settle(batch.deliveries, kept_sequences=batch.assembled.kept_groups)
        longest_ratio = self._pipeline.note_step(batch)
        self._reporter.step(stats, longest_ratio)
        self._checkpoints.begin_if_due()

    def _update(self, batch: GroupBatch) -> UpdateStats | None:
        """Make one optimizer step; None if nothing is left to train on, or if the gradient is not
        finite.
        """
        assembled = batch.assembled
        sequences = assembled.sequences
        if not sequences:
            return None
        with self._fleet.broadcasts_kept_away():
            if self._recorder is not None:
                groups = [delivery.group for delivery in batch.deliveries]
                self._recorder.begin(self.state.version, groups, sequences, batch.teacher)
            stats = self._learners.update(sequences, self._dispatcher_during_update())
        if assembled.teacher_kl is not None:
            stats = replace(stats, teacher_kl=assembled.teacher_kl)
        if self._recorder is not None:
            self._recorder.end(stats)
        if not stats.applied:
            self._reporter.update_skipped()
        self._numbers.note(stats)
        return stats if stats.applied else None

    def _dispatcher_during_update(self) -> Callable[[], None]:
        """Returns a function for the time between micro-batches: a long update must not delay what
        may be dispatched.

        Once Redis is away the update goes on without.
        """
        is_away = False

        def collect_and_dispatch() -> None:
            nonlocal is_away
            self.state.last_round_at = time.monotonic()
            if is_away:
                return
            try:
                self._pipeline.collect()
                self._pipeline.dispatch(self._pipeline.schedule.dispatch(self._reconcile()))
            except QueueAway:
                is_away = True

        return collect_and_dispatch

    def _publish(self) -> None:
        version = self.state.version
        slot = self._publisher.stage()
        self._learners.stage(slot, version)
        self._publisher.publish(slot, version)
        self.state.published = version

    # End

    def _finish(self) -> TrainerEnding:
        progress = self.state.progress
        if self._examiner.stop_reason is not None:
            self._reporter.stopped_early(progress.step, self._examiner.stop_reason)
        log.info(
            "training ends",
            step=progress.step,
            device_hours=round(self.state.compute.total_state, 4),
        )
        if self.state.published.step < progress.step:  # the budget ended inside a round
            self._publish()
        # How long every generator may take to hold the final weights before they are evaluated
        self._publisher.wait_acknowledged(progress.step, 60.0)
        self._pipeline.retire_all()  # every slot of the generators is free for the evaluation
        self._examiner.ask_last()
        while self._examiner.pending and not self._stop_requested():
            self.state.last_round_at = time.monotonic()
            self._pipeline.collect(POLL_SECONDS)
            self._pipeline.intake.reconcile_evaluation()
            self._watch()
        self._write_last_checkpoint()
        if self._stop_requested():
            return TrainerEnding.INTERRUPTED
        with self._fleet.broadcasts_kept_away():
            self._learners.export(self.state.folder / files.EXPORT)
        self.state.compute.save(stopped=True)
        return TrainerEnding.FINISHED

    def _write_last_checkpoint(self) -> None:
        self._checkpoints.begin()
        self._checkpoints.wait_written()
        # No round of the loop follows in which they would be removed.
        self._pipeline.intake.remove_done()

    def record_failure(self, error: Exception) -> None:
        """The trainer ends with this error."""
        if self._recorder is not None:
            self._recorder.fail(error)

    def close(self) -> None:
        if self._recorder is not None:
            # A disk that hangs holds up no end.
            self._recorder.close(seconds=30.0)
        if self._is_serving:
            # How long the publisher's threads and streams may take to end
            self._publisher.stop(timeout_seconds=10.0)
        self._pipeline.close()
