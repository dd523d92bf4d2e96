"""One group and the one thread that makes its collective calls, so that no other thread ever blocks in one.

    GroupWorker(...)      thread: open the group -> `opened` done
        submit(job)       thread: job(group) -> its future done, with the result or the error
        abandon()         thread: ends after the job in hand, at the latest when that job's own deadlines pass;
                          the group is dropped, which closes its connections and so wakes the peers

The thread is a daemon: one that hangs (a dead NCCL peer) is left behind, it cannot hold up the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from rollcast.weights.process_group import GroupAddress, GroupError, WeightGroup

Result = TypeVar("Result")


class GroupWorker:
    def __init__(self, address: GroupAddress, device: torch.device) -> None:
        """Start to open the group; done when `opened` is."""
        self.address = address
        self.opened: Future[None] = Future()
        self._device = device
        self._jobs: SimpleQueue[tuple[Callable[[WeightGroup], Any], Future[Any]] | None] = SimpleQueue()
        self._group: WeightGroup | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name=f"weight-group-{address.epoch}", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[WeightGroup], Result]) -> Future[Result]:
        """Run `job` on the group's thread after the earlier ones."""
        future: Future[Result] = Future()
        self._jobs.put((job, future))
        return future

    def abandon(self) -> None:
        """Leave the group; may be called from any thread and more than once."""
        self._abandoned = True
        self._jobs.put(None)
        if self._group is not None:
            self._group.abort()

    def ended(self, timeout_seconds: float = 0.0) -> bool:
        """Whether the thread is over, so that it no longer touches any buffer."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            # Its own stream: never behind the model's kernels.
            torch.cuda.set_stream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        try:
            self._group = WeightGroup(self.address, self._device)
        except Exception as error:
            self.opened.set_exception(error)
            return
        self.opened.set_result(None)
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                if self._abandoned:
                    raise GroupError(f"epoch {self.address.epoch}: abandoned")
                future.set_result(job(self._group))
            except Exception as error:
                future.set_exception(error)
        self._group = None
