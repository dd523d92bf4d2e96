"""Rank 0's flight recorder.

    begin (tasks, weights) -> update -> end (values of all ranks, conditions)
                                          -> ring of the last steps, in memory
                                          -> a thread: bundle -> disk, within record.max_bytes

    note_evaluation: the thread fits the curve, for the condition `broken`
    fail:            the ring, and the step under way, are written before the trainer ends

The thread never holds a step up: steps without room are dropped and counted.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal

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
from rollcast.trainer.recorder.pending_step import PendingStep, TeacherAnswers
from rollcast.wire.version import PolicyVersion

log = get_logger()
MemoryKind = Literal["steps", "weights"]
"""Kinds of memory that wait for the disk."""


class StepRecorder:
    """The main thread calls every method except those of the recorder's own thread."""

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
        needs_versions = self._settings.weights == "versions"
        self._num_older_versions = max_staleness if needs_versions else 0
        # Four steps show how a fault began, and seldom take more memory than the groups that wait.
        self._ring: deque[PendingStep] = deque(maxlen=4 if self._settings.on else 0)
        self._under_way: PendingStep | None = None
        self._was_broken = False
        self._lock = Lock()
        self._pending_bytes: Counter[MemoryKind] = Counter()
        self._futures: list[Future[None]] = []
        self._thread = ThreadPoolExecutor(1, "recorder")
        self._store = BundleStore(
            config.run_folder,
            self._settings.max_bytes,
            self._num_older_versions,
            ring_length=self._ring.maxlen or 0,
        )
        self._submit("steps", 0, self._store.open)

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
        self._takes_weights = self._keeps_weights(version.step) and self._reserve(
            "weights", self._weight_bytes
        )
        if self._takes_weights and not self._tape.copies_whole_weights:
            weights = self._learners.gather_weights()
        self._under_way = PendingStep(
            version,
            tasks,
            list(groups),
            sequences,
            weights,
            teacher or {},
            time.perf_counter() - started,
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
        # Last: the thread shares this process's interpreter with the step.
        self._submit_weights(pending)
        if conditions:
            self._write_ring(tuple(conditions), max(conditions.values()))
        elif is_due:
            self._write(pending, (), 0.0)

    def note_evaluation(self) -> None:
        """The curve has a new point."""
        if "broken" in self._settings.on:
            self._submit("steps", 0, self._judge)

    def fail(self, error: BaseException) -> None:
        """The trainer ends with this error."""
        if "failed" not in self._settings.on:
            return
        if self._under_way is not None:
            self._submit_weights(self._under_way)
            with self._lock:
                self._ring.append(self._under_way)
        if self._ring:
            self._ring[-1].error = f"{type(error).__name__}: {str(error)[:1_000]}"
            self._write_ring(("failed",), float("inf"))

    def close(self) -> None:
        """Waits for the disk, not for longer than a trainer's end may take."""
        deadline = time.monotonic() + 30.0
        # The thread itself may write the ring.
        while waiting := [item for item in self._futures if not item.done()]:
            if time.monotonic() > deadline:
                log.error("not every recorded step is written", waiting=len(waiting))
                break
            wait(waiting, timeout=deadline - time.monotonic())
        self._thread.shutdown(wait=False, cancel_futures=True)

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

    def _submit_weights(self, pending: PendingStep) -> None:
        """Let the thread write the weights before a step, and compute checksums."""
        weights = pending.weights
        pending.weights = None
        if self._takes_weights and self._tape.copies_whole_weights:
            weights = self._tape.take_whole_weights()
        self._submit("steps", 0, pending.complete)
        if weights is not None:
            self._start("weights", self._weight_bytes, partial(self._add_weights, pending, weights))

    def _write_ring(self, conditions: tuple[str, ...], badness: float) -> None:
        """Write the last steps; the conditions are those of the newest."""
        with self._lock:
            *earlier, newest = self._ring
        for pending in earlier:
            if not pending.is_written:
                self._write(pending, (), 0.0)
        self._write(newest, conditions, badness)

    def _write(self, pending: PendingStep, conditions: tuple[str, ...], badness: float) -> None:
        action = partial(self._write_now, pending, conditions, badness)
        pending.is_written = self._submit("steps", pending.num_bytes, action)

    def _submit(self, kind: MemoryKind, num_bytes: int, action: Callable[[], object]) -> bool:
        """Let the thread do it; False = it was dropped: what waits takes too much memory."""
        has_room = self._reserve(kind, num_bytes)
        if has_room:
            self._start(kind, num_bytes, action)
        return has_room

    def _reserve(self, kind: MemoryKind, num_bytes: int) -> bool:
        """Count memory that will wait for the thread, if there is room."""
        with self._lock:
            waiting = self._pending_bytes[kind]
            # What may wait for the disk, of steps and of weights; one item of each always may.
            if num_bytes and waiting and waiting + num_bytes > 1 << 30:
                self._exporter.add(trainer_metrics.RECORDER_DROPPED, reason="slow_disk")
                return False
            self._pending_bytes[kind] += num_bytes
        return True

    def _start(self, kind: MemoryKind, num_bytes: int, action: Callable[[], object]) -> None:
        """Let the thread do what there is room for."""
        with self._lock:
            future = self._thread.submit(self._carry_out, kind, num_bytes, action)
            self._futures = [item for item in self._futures if not item.done()] + [future]

    # The thread

    def _carry_out(self, kind: MemoryKind, num_bytes: int, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, UserError) as error:
            self._exporter.add(trainer_metrics.RECORDER_DROPPED, reason="disk")
            log.error("a step could not be recorded", error=str(error))
        except Exception as error:
            self._exporter.add(trainer_metrics.RECORDER_DROPPED, reason="error")
            log.exception("the recorder failed", error=str(error))
        finally:
            with self._lock:
                self._pending_bytes[kind] -= num_bytes

    def _add_weights(self, pending: PendingStep, weights: WholeWeights) -> None:
        digests = pending.digests_before
        self._count_removed(self._store.add_weights(pending.version, weights(), digests))

    def _count_removed(self, num_removed: int) -> None:
        if num_removed:
            self._exporter.add(trainer_metrics.RECORDER_DROPPED, num_removed, reason="max_bytes")

    def _write_now(self, pending: PendingStep, conditions: tuple[str, ...], badness: float) -> None:
        pending.complete()  # a curve that breaks has the newest step written before its turn
        bundle = pending.to_bundle(
            self._run, self._run_settings, conditions, self._settings.weights
        )
        self._count_removed(self._store.add_step(bundle, pending.name, badness))
        for reason in conditions or ("every_steps",):
            self._exporter.add(trainer_metrics.RECORDED_STEPS, reason=reason)
        self._exporter.set(trainer_metrics.RECORDER_BYTES, self._store.num_bytes)
        if conditions:
            log.warning("a step is recorded", step=pending.step, conditions=list(conditions))

    def _judge(self) -> None:
        try:
            kind = _verdict(self._run_folder)
        except (UserError, ValueError, ArithmeticError) as error:
            log.info("the recorder cannot fit the curve yet", error=str(error))
            return
        is_broken = kind in (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID)
        if is_broken and not self._was_broken and self._ring:
            self._write_ring(("broken",), float("inf"))
        self._was_broken = is_broken


def _verdict(run_folder: Path) -> VerdictKind:
    """The verdict on the run's curve. Raises UserError as long as it cannot be read."""
    history, _, _ = history_of_folder(run_folder, None)
    return forecast_history(history).forecast.verdict.kind
