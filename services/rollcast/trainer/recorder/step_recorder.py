"""Rank 0's flight recorder.

    begin (tasks, weights) -> update -> end (values of all ranks, conditions)
                                          -> ring of the last steps, in memory
                                          -> a thread: checksums of the weights
                                          -> a thread: bundle -> disk, within record.max_bytes

    note_evaluation: the disk's thread fits the curve, for the condition `broken`
    fail:            the ring, and the step under way, are written before the trainer ends

The threads never hold a step up: steps without room are dropped, counted and named in the log.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.record import StepRecording
from rollcast.curves.run_forecast import forecast_history
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.rollouts.records import PromptTask, RolloutGroup
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.learner.whole_weights import WholeWeights
from rollcast.trainer.recorder.bundle_store import BundleStore
from rollcast.trainer.recorder.job_thread import Job, JobThread, MemoryKind
from rollcast.trainer.recorder.pending_step import PendingStep, TeacherAnswers
from rollcast.wire.version import PolicyVersion

log = get_logger()


class StepRecorder:
    """The main thread calls every method except those of the disk's own thread."""

    def __init__(
        self,
        learners: LearnerGroup,
        exporter: Exporter,
        find_task: Callable[[RolloutGroup], PromptTask],
        max_staleness: int,
    ) -> None:
        """`find_task`: the task that a group answers, until the group is settled."""
        config = learners.config
        self._settings: StepRecording = config.record
        self._run = config.run
        self._run_folder = config.run_folder
        self._run_settings: dict[str, Any] = config.model_dump(mode="json")
        self._learners = learners
        assert learners.learner.tape is not None
        self._tape = learners.learner.tape
        self._takes_weights = False
        # In float32
        self._weight_bytes = sum(4 * math.prod(spec.shape) for spec in learners.specs)
        self._exporter = exporter
        self._find_task = find_task
        self._num_older_versions = max_staleness if self._settings.weights == "versions" else 0
        # Four steps show how a fault began, and seldom take more memory than the groups that wait.
        self._ring: deque[PendingStep] = deque(maxlen=4 if self._settings.on else 0)
        self._under_way: PendingStep | None = None
        self._was_broken = False
        self._lock = Lock()
        self._store = BundleStore(
            config.run_folder,
            self._settings.max_bytes,
            self._num_older_versions,
            ring_length=self._ring.maxlen or 0,
        )
        self._disk = JobThread("recorder")
        # A thread of its own: copies of weights must not wait for the disk.
        self._checksums = JobThread("recorder-checksums")
        self._submit("", self._store.open)

    def begin(
        self,
        version: PolicyVersion,
        groups: Sequence[RolloutGroup],
        sequences: Sequence[TrainingSequence],
        teacher: Mapping[int, TeacherAnswers] | None,
    ) -> None:
        """Before an update on these sequences."""
        started = time.perf_counter()
        tasks = [self._find_task(group) for group in groups]
        weights: WholeWeights | None = None
        # Weights that would be dropped are not gathered: a transfer between ranks that is never
        # received blocks every later one.
        self._takes_weights = self._keeps_weights(version.step) and self._has_room(
            f"weights {version}", self._weight_bytes, "weights"
        )
        if self._takes_weights and not self._tape.copies_whole_weights:
            weights = self._learners.gather_weights()
        waited_seconds = time.perf_counter() - started
        self._under_way = PendingStep(
            version, tasks, list(groups), sequences, weights, teacher or {}, waited_seconds
        )

    def end(self, stats: UpdateStats) -> None:
        """The update is over, whether or not it made a step."""
        started = time.perf_counter()
        pending = self._under_way
        assert pending is not None
        self._under_way = None
        pending.stats = stats
        pending.taped = self._tape.take()
        pending.at = time.time()
        with self._lock:
            self._ring.append(pending)
            # 512 MiB of steps in memory, beyond the newest
            while len(self._ring) > 1 and sum(item.num_bytes for item in self._ring) > 512 << 20:
                self._ring.popleft()
        conditions = pending.find_conditions(self._settings)
        every = self._settings.every_steps
        is_due = every is not None and stats.applied and pending.step % every == 0
        if pending.taped is not None:
            pending.waited_seconds += pending.taped.seconds
        pending.waited_seconds += time.perf_counter() - started
        self._exporter.add(trainer_metrics.RECORDER_WAIT, pending.waited_seconds)
        # Last: the threads share this process's interpreter with the step.
        action = partial(self._carry_out, pending.name, pending.complete)
        self._checksums.submit(Job("", action, num_bytes=0))
        if conditions:
            self._write_ring(tuple(conditions), max(conditions.values()))
        elif is_due:
            self._write(pending)
        self._write_weights(pending)

    def note_evaluation(self) -> None:
        """The curve has a new point."""
        if "broken" in self._settings.on:
            self._submit("", self._judge)

    def fail(self, error: BaseException) -> None:
        """The trainer ends with this error."""
        if "failed" not in self._settings.on:
            return
        under_way = self._under_way
        if under_way is not None:
            with self._lock:
                self._ring.append(under_way)
        if self._ring:
            self._ring[-1].error = f"{type(error).__name__}: {str(error)[:1_000]}"
            self._write_ring(("failed",), math.inf)
        if under_way is not None:
            self._write_weights(under_way)

    def close(self, seconds: float) -> None:
        """Wait for the disk, for `seconds` at most."""
        deadline = time.monotonic() + seconds
        # The disk's jobs wait for the checksums of their step.
        self._checksums.close(seconds)
        jobs = self._disk.close(deadline - time.monotonic())
        names = [job.name for job in jobs if job.name]
        if names:
            self._count_dropped(len(names), "slow_disk")
            log.error("the disk did not take these records in time", missing=names)

    def _keeps_weights(self, version_step: int) -> bool:
        """Whether a step that may be kept needs the weights of this step."""
        if self._settings.weights == "none":
            return False
        if self._settings.on:
            return True
        assert self._settings.every_steps is not None
        first = version_step + 1
        later_steps = range(first, first + 1 + self._num_older_versions)
        return any(step % self._settings.every_steps == 0 for step in later_steps)

    def _write_weights(self, pending: PendingStep) -> None:
        """After the step: the room for its weights is then made as that of the newest step."""
        weights = pending.weights
        pending.weights = None
        if self._takes_weights and self._tape.copies_whole_weights:
            weights = self._tape.take_whole_weights()
        if weights is not None:
            action = partial(self._add_weights, pending, weights)
            num_bytes = self._weight_bytes + pending.num_bytes
            self._submit(f"weights {pending.version}", action, num_bytes, "weights")

    def _write_ring(self, conditions: tuple[str, ...], badness: float) -> None:
        """Write the last steps; the conditions are those of the newest.

        The newest first: the earlier ones then take the room of no worse step, and it is written
        even if the disk is slow.
        """
        with self._lock:
            newest, *earlier = reversed(self._ring)
        self._write(newest, conditions, badness)
        for pending in earlier:
            if not pending.is_written:
                self._write(pending, is_newest=False)

    def _write(
        self,
        pending: PendingStep,
        conditions: tuple[str, ...] = (),
        badness: float = 0.0,
        *,
        is_newest: bool = True,
    ) -> None:
        pending.is_written = self._has_room(pending.name, pending.num_bytes)
        if pending.is_written:
            action = partial(self._add_step, pending, conditions, badness, is_newest=is_newest)
            self._submit(pending.name, action, pending.num_bytes)

    def _has_room(self, name: str, num_bytes: int, kind: MemoryKind = "steps") -> bool:
        """Whether a record may wait for the disk; it is dropped if what waits takes too much
        memory.
        """
        has_room = self._disk.has_room(kind, num_bytes)
        if not has_room:
            self._count_dropped(1, "slow_disk")
            log.warning("the disk is too slow for a record", missing=name)
        return has_room

    def _submit(
        self,
        name: str,
        action: Callable[[], object],
        num_bytes: int = 0,
        kind: MemoryKind = "steps",
    ) -> None:
        self._disk.submit(Job(name, partial(self._carry_out, name, action), num_bytes, kind))

    # The threads

    def _carry_out(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, UserError) as error:
            self._count_dropped(1, "disk")
            log.error("a step could not be recorded", missing=name, error=str(error))
        except Exception as error:
            self._count_dropped(1, "error")
            log.exception("the recorder failed", missing=name, error=str(error))

    def _add_weights(self, pending: PendingStep, weights: WholeWeights) -> None:
        pending.complete()
        digests = pending.digests_before
        num_removed = self._store.add_weights(pending.version, weights(), digests)
        self._count_dropped(num_removed, "max_bytes")

    def _add_step(
        self,
        pending: PendingStep,
        conditions: tuple[str, ...],
        badness: float,
        *,
        is_newest: bool,
    ) -> None:
        pending.complete()
        bundle = pending.to_bundle(
            self._run, self._run_settings, conditions, self._settings.weights
        )
        num_removed = self._store.add_step(bundle, pending.name, badness, is_newest=is_newest)
        self._count_dropped(num_removed, "max_bytes")
        for reason in conditions or ("every_steps",):
            self._exporter.add(trainer_metrics.RECORDED_STEPS, reason=reason)
        self._exporter.set(trainer_metrics.RECORDER_BYTES, self._store.num_bytes)
        if conditions:
            log.warning("a step is recorded", step=pending.step, conditions=list(conditions))

    def _count_dropped(self, number: int, reason: str) -> None:
        self._exporter.add(trainer_metrics.RECORDER_DROPPED, number, reason=reason)

    def _judge(self) -> None:
        try:
            kind = _verdict(self._run_folder)
        except (UserError, ValueError, ArithmeticError) as error:
            log.info("the recorder cannot fit the curve yet", error=str(error))
            return
        is_broken = kind in (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID)
        if is_broken and not self._was_broken and self._ring:
            self._write_ring(("broken",), math.inf)
        self._was_broken = is_broken


def _verdict(run_folder: Path) -> VerdictKind:
    """The verdict on the run's curve. Raises UserError as long as it cannot be read."""
    history, _, _ = history_of_folder(run_folder, None)
    return forecast_history(history).forecast.verdict.kind
