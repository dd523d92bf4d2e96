"""One group and the only thread that makes its collective calls, so that no other thread ever
blocks in one.

    GroupWorker(...)      thread: open the group, after that of the lane before -> `opened` done
        submit(job)       thread: job(group) -> its future done, with the result or the error
        abandon()         returns immediately. thread: stops waiting, closes the group, ends
    The first failure ends the thread too. The thread itself closes the group, since an abort of
    NCCL takes half a second; the lanes of an epoch do it side by side.

`wait_released` reports when the caller's memory is free again: after the close, or immediately if
no job can have begun. A thread that is still inside the opening of NCCL or gloo therefore holds up
nothing.

The thread is a daemon: one that hangs (a dead NCCL peer) cannot block the end of the process. But
an interpreter that ends while a thread is inside gloo aborts, so the end of the process waits up to
6 s for these threads.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

import torch

from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.telemetry.logging import get_logger
from rollcast.weights.transport.errors import GroupError, NoRoomError
from rollcast.weights.transport.process_group import GroupAddress, WeightGroup

Result = TypeVar("Result")


log = get_logger()


class GroupWorker:
    def __init__(
        self, address: GroupAddress, device: torch.device, previous_lane: GroupWorker | None = None
    ) -> None:
        """Start to open the group; `opened` is done when it is open.

        after: the lane before this one at the same receiver. NCCL needs one order of opening at all
        members.
        """
        self.address = address
        self.opened: Future[None] = Future()
        # set_device wants a number, and a piece is received in place only if its device is the same
        # as the group's.
        is_unnumbered = device.type == "cuda" and device.index is None
        self._device = (
            torch.device("cuda", torch.cuda.current_device()) if is_unnumbered else device
        )
        self._started_at = time.monotonic()
        self._jobs: SimpleQueue[tuple[Callable[[WeightGroup], Any], Future[Any]] | None] = (
            SimpleQueue()
        )
        self._lock = threading.Lock()  # guards the three below and the end of the queue
        self._is_open = False
        self._is_over = False
        self._abandoned_at: float | None = None
        self._abandoned = threading.Event()
        self._released = threading.Event()
        self._turn = threading.Event()
        self._previous_lane = previous_lane
        if previous_lane is not None:
            previous_lane.opened.add_done_callback(lambda _: self._turn.set())
        _report_lingering()
        self._thread = threading.Thread(
            target=self._run, name=f"weight-group-{address.epoch}.{address.lane}", daemon=True
        )
        self._thread.start()
        with _running_lock:
            _running.add(self)

    def submit(self, job: Callable[[WeightGroup], Result]) -> Future[Result]:
        """Run `job` on the group's thread after the earlier jobs."""
        future: Future[Result] = Future()
        with self._lock:
            if not self._is_over:
                self._jobs.put((job, future))
                return future
        future.set_exception(self.address.error("abandoned"))
        return future

    def abandon(self) -> None:
        """Leave the group; returns immediately.

        May be called from any thread and more than once.
        """
        with self._lock:
            self._abandoned_at = self._abandoned_at or time.monotonic()
            # Before the end of the queue, so that jobs which still wait in it fail instead of being
            # sent.
            self._abandoned.set()
            self._jobs.put(None)
            is_opening = not self._is_open
        if is_opening:
            # No job has begun and none will, whatever the thread still waits for.
            self._released.set()
            _conclude(self.opened, None, self.address.error("abandoned while it was opened"))

    def wait_released(self, timeout_seconds: float = 0.0) -> bool:
        """Whether it no longer touches any buffer of its caller."""
        return self._released.wait(timeout_seconds)

    def is_lingering(self) -> bool:
        """Whether its thread lives although it was abandoned long ago."""
        since = self._abandoned_at
        # A thread that lives longer after it was abandoned is reported: longer than opening and
        # abort may take together
        return since is not None and time.monotonic() - since > 120.0 and self._thread.is_alive()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        group: WeightGroup | None = None
        failure: GroupError | None = None
        try:
            group = self._open()
        except Exception as error:
            failure = self._strip_traceback(error)
        with self._lock:
            self._is_open = group is not None
        _conclude(self.opened, None, failure)
        while group is not None and failure is None and (item := self._jobs.get()) is not None:
            failure = self._perform(group, *item)
        is_closed = group is None or self._close(group)
        self._refuse_jobs()
        if is_closed:
            self._released.set()

    def _open(self) -> WeightGroup:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            torch.cuda.set_stream(_lane_stream(self._device, self.address.lane))
        if self._previous_lane is not None:
            previous_opening = self._previous_lane.opened
            # Otherwise each lane would keep all those before it.
            self._previous_lane = None
            self._turn.wait(self.address.opening_seconds)
            if not previous_opening.done() or previous_opening.exception() is not None:
                raise self.address.error("the lane before it was not opened")
        return WeightGroup(
            self.address, self._device, self._abandoned, time.monotonic() - self._started_at
        )

    def _perform(
        self, group: WeightGroup, job: Callable[[WeightGroup], Any], future: Future[Any]
    ) -> GroupError | None:
        result = None
        failure = None
        try:
            if self._abandoned.is_set():
                raise self.address.error("abandoned")
            result = job(group)
        except Exception as error:
            failure = self._strip_traceback(error)
        _conclude(future, result, failure)
        return failure

    def _close(self, group: WeightGroup) -> bool:
        """Whether it no longer touches any memory."""
        try:
            group.close()
        except Exception:
            log.exception("a weight group was not closed in good order", epoch=self.address.epoch)
            # Kept, with all that it may still write.
            _not_closed.append(group)
            return False
        return True

    def _refuse_jobs(self) -> None:
        with self._lock:
            self._is_over = True
        while True:
            try:
                item = self._jobs.get_nowait()
            except Empty:
                return
            if item is not None:
                _conclude(item[1], None, self.address.error("abandoned"))

    def _strip_traceback(self, error: Exception) -> GroupError:
        """The error without its traceback, whose frames would keep the group and its connections
        open.
        """
        # Distinguished, because a new group would fail in the same way.
        if is_out_of_memory(error):
            # Characters of torch's message
            text = " ".join(str(error).split())[:300]
            return NoRoomError(
                f"epoch {self.address.epoch}: out of memory while a version travelled ({text})"
            )
        if not isinstance(error, GroupError):
            log.exception("a weight group failed in an unexpected way", epoch=self.address.epoch)
        return type(error)(str(error)) if isinstance(error, GroupError) else GroupError(str(error))


@cache
def _lane_stream(device: torch.device, lane: int) -> torch.cuda.Stream:
    """The stream on which a lane copies, so that it never waits for the model's kernels.

    Kept for all its groups: torch has 32 streams of each priority, and hands the same ones out
    again after that. NCCL's are of the other priority: a lane that shared one would wait for the
    broadcast of another lane.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


_running: WeakSet[GroupWorker] = WeakSet()
_running_lock = threading.Lock()
_not_closed: list[WeightGroup] = []


def _all_running() -> list[GroupWorker]:
    with _running_lock:
        return list(_running)


def _report_lingering() -> None:
    """Log how many threads of abandoned groups do not end; looked at whenever a group is opened."""
    lingering = [worker for worker in _all_running() if worker.is_lingering()]
    if lingering:
        log.warning("threads of abandoned weight groups do not end", threads=len(lingering))


@atexit.register
def _end_all() -> None:
    workers = _all_running()
    # 6.0: a little longer than the default deadline of a piece (weights.bucket_timeout_seconds),
    # which ends a call of gloo.
    deadline = time.monotonic() + 6.0
    for worker in workers:
        worker.abandon()
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))


def _conclude(future: Future[Result], result: Result, failure: GroupError | None) -> None:
    """Set the outcome, unless an abandonment was faster."""
    try:
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
    except InvalidStateError:
        assert future.done()
