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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rollcast.config.run import RunConfig
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.mixture import MixtureCurriculum
from rollcast.recipe.schedule import Batch, PipelineState, Schedule, Wait, WaitReason
from rollcast.rollouts.base import Delivery, TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import RolloutGroup
from rollcast.runfolder import files
from rollcast.runfolder.format_version import mark_format
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.process_age import process_age_seconds
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.compute import ComputeLedger
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.dispatch import Dispatcher
from rollcast.trainer.control.examiner import Examiner
from rollcast.trainer.control.fleet import AWAY_RETRY_SECONDS, Fleet
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.pacing import Pacing
from rollcast.trainer.control.progress import CheckpointUnderWay, Progress
from rollcast.trainer.control.reporting import Reporter
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.sender.publisher import Publisher
from rollcast.wire.version import PolicyVersion

POLL_SECONDS = 0.05
"""Of one wait for groups: how soon acknowledgements and a request to stop are seen."""
FINAL_ACKNOWLEDGE_SECONDS = 60.0
"""For every generator to hold the final weights before they are evaluated."""
CLOSE_SECONDS = 10.0
"""For the publisher's threads and streams to end."""
log = get_logger()


class Controller:
    """One incarnation of the trainer."""

    def __init__(
        self,
        config: RunConfig,
        *,
        progress: Progress,
        checkpoint: PolicyVersion,
        history: SurvivingHistory,
        schedule: Schedule,
        curriculum: Curriculum | MixtureCurriculum,
        ledger: Ledger,
        queue: TrainerQueue,
        dispatcher: Dispatcher,
        examiner: Examiner,
        defects: DefectFinder,
        intake: Intake,
        pacing: Pacing,
        fleet: Fleet,
        compute: ComputeLedger,
        reporter: Reporter,
        exporter: Exporter,
        publisher: Publisher,
        learners: LearnerGroup,
        ranks: Ranks,
        stop_requested: Callable[[], bool],
    ) -> None:
        """`build_controller` makes the parts. `checkpoint`: version of the newest one; its step is -1 where none is."""
        self._config = config
        self._progress = progress
        self._checkpoint_version = checkpoint
        self._under_way: CheckpointUnderWay | None = None
        self._history = history
        self._schedule = schedule
        self._curriculum = curriculum
        self._ledger = ledger
        self._queue = queue
        self._dispatcher = dispatcher
        self._examiner = examiner
        self._defects = defects
        self._intake = intake
        self._pacing = pacing
        self._fleet = fleet
        self._compute = compute
        self._reporter = reporter
        self._exporter = exporter
        self._publisher = publisher
        self._learners = learners
        self._ranks = ranks
        self._stop_requested = stop_requested
        self._steps_since_start = 0
        self._published_step = progress.step
        self._refilled: list[RolloutGroup] = []
        """Filtered on arrival since the last batch: others take their place."""
        self._is_out_of_prompts = False
        self._is_serving = False
        self._straggler_seconds = 0.0
        self._turned_at = self._last_step_at = time.monotonic()

    # Start

    def start(self) -> int:
        """Serve generators and publish the current weights; returns the gRPC port."""
        mark_format(self._config.run_folder)
        port = self._publisher.start()
        self._is_serving = True
        self._compute.start(
            self._ranks.num_devices,
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

    def run(self) -> TrainerEnding:
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
        self._see_checkpoint()
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
        self._fleet.hand_over(
            self._publisher.members(), self._schedule, state, waited_for, ask=self._publisher.hand_over
        )
        match decision:
            case Wait(reason=reason):
                if reason is WaitReason.BATCH:  # a wait for weights does not say that no batch lies ready
                    self._is_out_of_prompts = self._dispatcher.is_exhausted and self._intake.all_ready
                self._wait(reason)
            case Batch(sequences=sequences):
                self._step(sequences)

    def _state(self) -> PipelineState:
        """Acknowledgements are read before the claims: a start that is not seen yet counts as the oldest possible."""
        acknowledged = self._publisher.lowest_step()
        self._intake.reconcile()
        return PipelineState(
            step=self._progress.step,
            steps_since_start=self._steps_since_start,
            acknowledged=acknowledged,
            groups=self._intake.groups(),
            enough=self._pacing.enough(),
        )

    def _collect(self, block_seconds: float) -> None:
        """Read what came; where filtered groups do not count towards a batch, return their credit at once."""
        self._intake.collect(block_seconds)
        if self._intake.has_own_rollouts:
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
        """The queue has waited for half a minute already. The loop asks it again, unless a stop was requested."""
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
        with self._broadcasts_kept_away():
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

    @contextmanager
    def _broadcasts_kept_away(self) -> Iterator[None]:
        """Where broadcasts would share GPUs with collectives they go first, or after them, unless the run says else."""
        alone = self._ranks.num_devices == 1 or self._ranks.device.type != "cuda"
        if alone or self._config.weights.overlap_training:
            yield
            return
        started, patience = time.monotonic(), self._config.weights.acknowledge_timeout_seconds
        with self._publisher.kept_away(self._published_step, patience):
            self._exporter.add(names.TRAINER_WAIT, time.monotonic() - started, **{"for": "weights"})
            yield

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
        slot = self._publisher.stage()
        self._learners.stage(slot, self.version)
        self._publisher.publish(slot, self.version)
        self._published_step = self._progress.step
        self._defects.newest = self.version

    # Checkpoint and end

    def _checkpoint(self, *, wait: bool = False) -> None:
        """Weights, optimizer and progress first; only then are the held groups let go. Training goes on meanwhile."""
        self._see_checkpoint(wait=True)
        self._progress.incarnation = self._history.incarnation
        self._progress.earlier = [list(pair) for pair in self._history.earlier]
        self._progress.compute_state = dict(self._compute.state)
        self._progress.start_up = self._compute.total_start_up
        self._progress.ledger = self._ledger.state()
        self._progress.curriculum = self._curriculum.state()
        started = time.monotonic()
        written = self._learners.save(self.version, self._progress.as_json())
        self._reporter.checkpoint_begun(self.version)
        self._under_way = CheckpointUnderWay(self.version, started, written, dict(self._ledger.held))
        self._checkpoint_version = self.version  # from now on what it could use is held
        if wait:
            self._see_checkpoint(wait=True)

    def _see_checkpoint(self, *, wait: bool = False) -> None:
        """Once a checkpoint is on the disk, let go of the groups that were held for the one before."""
        under_way = self._under_way
        if under_way is None or not (wait or under_way.written.done()):
            return
        self._under_way = None
        under_way.written.result()
        self._reporter.checkpoint(under_way.version, time.monotonic() - under_way.started)
        self._compute.save()
        self._intake.done_with(under_way.held.values())
        for sequence in under_way.held:
            self._ledger.held.pop(sequence, None)

    def _budget_reached(self) -> bool:
        budget = self._config.budget
        if budget.steps is not None and self._progress.step >= budget.steps:
            return True
        if budget.device_hours is not None and self._compute.total_state >= budget.device_hours:
            return True
        return self._is_out_of_prompts or self._examiner.stop_reason is not None

    def _finish(self) -> TrainerEnding:
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
        self._checkpoint(wait=True)
        self._intake.remove_done()
        if self._stop_requested():
            return TrainerEnding.INTERRUPTED
        with self._broadcasts_kept_away():
            self._learners.export(self._config.run_folder / files.EXPORT)
        self._compute.save(stopped=True)
        return TrainerEnding.FINISHED

    def _interrupted(self) -> TrainerEnding:
        with suppress(QueueAway):
            self._checkpoint(wait=True)
            self._intake.remove_done()
        return TrainerEnding.INTERRUPTED

    def close(self) -> None:
        """Let go of generators and Redis."""
        if self._is_serving:
            self._publisher.stop(deadline_seconds=CLOSE_SECONDS)
        self._queue.close()
