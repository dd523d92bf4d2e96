"""One group and the only thread that makes its collective calls, so that no other thread ever blocks in one.

    GroupWorker(...)      thread: open the group -> `opened` done
        submit(job)       thread: job(group) -> its future done, with the result or the error
        abandon()         thread: ends after the running job, at the latest when that job's own deadlines pass
    The first failure ends the thread too. Either way the group is dropped, which closes its connections and so wakes
    the peers.

The thread is a daemon: one that hangs (a dead NCCL peer) cannot block the end of the process. But an interpreter that
ends while a thread is inside gloo aborts, so the end of the process waits up to EXIT_SECONDS for these threads.
"""

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

import torch

from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.telemetry.logging import get_logger
from rollcast.weights.transport.process_group import GroupAddress, GroupError, NoRoomError, WeightGroup

Result = TypeVar("Result")

EXIT_SECONDS = 6.0
"""A little longer than the default deadline of a piece (weights.bucket_timeout_seconds), which ends a call of gloo."""
MAX_ERROR_CHARACTERS = 300

log = get_logger()


class GroupWorker:
    def __init__(self, address: GroupAddress, device: torch.device) -> None:
        """Start to open the group; `opened` is done when it is open."""
        self.address = address
        self.opened: Future[None] = Future()
        self._device = device
        self._jobs: SimpleQueue[tuple[Callable[[WeightGroup], Any], Future[Any]] | None] = SimpleQueue()
        self._group: WeightGroup | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name=f"weight-group-{address.epoch}", daemon=True)
        self._thread.start()
        _running.add(self)

    def submit(self, job: Callable[[WeightGroup], Result]) -> Future[Result]:
        """Run `job` on the group's thread after the earlier jobs."""
        future: Future[Result] = Future()
        self._jobs.put((job, future))
        return future

    def abandon(self) -> None:
        """Leave the group. May be called from any thread and more than once."""
        # Before the end of the queue, so that jobs which still wait in it fail instead of being sent.
        self._abandoned = True
        self._jobs.put(None)
        if self._group is not None:
            self._group.abort()

    def ended(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the thread has ended, so that it no longer touches any buffer."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            # A stream of its own, so that it never waits for the model's kernels.
            torch.cuda.set_stream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        failure: GroupError | None = None
        try:
            self._group = WeightGroup(self.address, self._device)
        except Exception as error:
            failure = self._described(error)
        _conclude(self.opened, None, failure)
        while failure is None and (item := self._jobs.get()) is not None:
            failure = self._perform(*item)
        self._group = None

    def _perform(self, job: Callable[[WeightGroup], Any], future: Future[Any]) -> GroupError | None:
        result = None
        failure = None
        try:
            if self._abandoned or self._group is None:
                raise GroupError(f"epoch {self.address.epoch}: abandoned")
            result = job(self._group)
        except Exception as error:
            failure = self._described(error)
            # Closes the connections, which wakes the peers.
            self._group = None
        _conclude(future, result, failure)
        return failure

    def _described(self, error: Exception) -> GroupError:
        """The error without its traceback, whose frames would keep the group and its connections open."""
        # Distinguished, because a new group would fail in the same way.
        if is_out_of_memory(error):
            text = " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
            return NoRoomError(f"epoch {self.address.epoch}: out of memory while a version travelled ({text})")
        if not isinstance(error, GroupError):
            log.exception("a weight group failed in an unexpected way", epoch=self.address.epoch)
        return type(error)(str(error)) if isinstance(error, GroupError) else GroupError(str(error))


_running: WeakSet[GroupWorker] = WeakSet()


@atexit.register
def _end_all() -> None:
    workers = list(_running)
    deadline = time.monotonic() + EXIT_SECONDS
    for worker in workers:
        worker.abandon()
    for worker in workers:
        worker.ended(max(0.0, deadline - time.monotonic()))


def _conclude(future: Future[Any], result: Any, failure: GroupError | None) -> None:
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
