"""Checkpoints written while training goes on: whole or absent.

    save -> copy to the host (blocks) -> training goes on
                                      -> a thread of every rank writes its part
                                         -> rank 0 completes the checkpoint

The thread has a process group of its own: its collectives never meet training's. One checkpoint is
written at a time.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.runfolder.files import Place
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.learner.checkpoint import (
    CheckpointStorage,
    controller_text,
    disk_failure,
    state,
)
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.number_checks import check_finite
from rollcast.wire.version import PolicyVersion

log = get_logger()
ChooseBest = Callable[[Sequence[str]], Collection[str]]
"""Maps the names of checkpoints, oldest first, to those that stay as the best."""
WRITE_TIMEOUT = timedelta(hours=2)
"""Deadline of a collective of the writing threads: ranks wait for the slowest disk."""


class CheckpointSaver:
    """Writes the checkpoints of one learner into `storage` and keeps the newest `keep`, and those
    of the older ones that `choose_best`, called in a thread, returns.
    """

    def __init__(
        self,
        learner: Learner,
        storage: CheckpointStorage,
        *,
        keep: int,
        choose_best: ChooseBest = lambda names: (),
    ) -> None:
        on_gpu = learner.ranks.device.type == "cuda"
        self._learner = learner
        self._storage = storage
        self._keep = keep
        self._choose_best = choose_best
        self._group = dist.new_group(backend="gloo", timeout=WRITE_TIMEOUT)
        # It keeps its buffers: pinned pages are slow to allocate.
        self._stager = DefaultStager(StagingOptions(on_gpu, False, False, on_gpu))
        self._write_future: Future[Place] | None = None

    def reserve(self) -> None:
        """Take the memory that checkpoints are copied into: new pages would make the first copy
        many times as long.
        """
        self._stager.stage(state(self._learner))

    def begin(self, version: PolicyVersion, controller: dict[str, Any] | None) -> Future[Place]:
        """Copy the learner's state and begin to write it; the one before must be done. Collective.

        `controller` counts at rank 0. The result is the checkpoint's place, or the UserError of a
        disk that is full or not writable, which is raised on every rank if the disk refuses
        immediately; nothing half-written is left. Raises WrongNumbersError on every rank if a
        number is not finite.
        """
        name = str(version)
        tensors = state(self._learner)
        check_finite(tensors.values(), "weights or AdamW's moments", "saved")
        num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        self._at_rank_0(lambda: self._storage.begin(name, num_bytes))
        # Now, because training goes on while the files are written.
        text = controller_text(self._learner, controller)
        write_future: Future[Place] = Future()
        upload = async_save(
            tensors,
            storage_writer=self._storage.writer(name),
            process_group=self._group,
            async_stager=self._stager,
        )
        cast("Future[Any]", upload).add_done_callback(
            lambda done: self._end(done, write_future, name, text)
        )
        self._write_future = write_future
        return write_future

    def replace_controller(
        self, version: PolicyVersion, controller: dict[str, Any]
    ) -> Place | None:
        """Rank 0: if `version` was saved already, replace the controller's state alone: the weights
        are equal.
        """
        name = str(version)
        try:
            # A run that ends without a further step saves the same version twice.
            if name not in self._storage.names():
                return None
            self._storage.replace_controller(name, controller_text(self._learner, controller))
        except OSError as error:
            raise self._write_error(error) from error
        return self._storage.at(name)

    def wait_written(self, seconds: float | None = None) -> None:
        """Wait until the checkpoint under way is written or has failed, for `seconds` at most."""
        if self._write_future is not None:
            wait([self._write_future], timeout=seconds)

    def _end(self, upload: Future[Any], write_future: Future[Place], name: str, text: str) -> None:
        """Called in the writing thread: complete the checkpoint, or remove it."""
        is_first = self._learner.ranks.rank == 0
        try:
            upload.result()
            if is_first:
                self._storage.complete(name, text)
        except BaseException as error:
            if is_first:
                self._storage.abandon(name)
            refusal = disk_failure(error) if isinstance(error, CheckpointException) else error
            write_future.set_exception(
                self._write_error(refusal) if isinstance(refusal, OSError) else error
            )
            return
        try:
            if is_first:
                self._remove_old_ones()
        finally:  # training waits for it
            write_future.set_result(self._storage.at(name))

    def _remove_old_ones(self) -> None:
        """Remove old checkpoints that are not among the best.

        One that cannot be removed now is tried again after the next checkpoint.
        """
        try:
            older = self._storage.names()[self._keep :]
            best = self._choose_best(older[::-1])
            for name in older:
                if name not in best:
                    self._storage.remove(name)
        except OSError as error:
            log.warning(
                "old checkpoints stay for now", place=str(self._storage.location), error=str(error)
            )

    def _at_rank_0(self, action: Callable[[], None]) -> None:
        """Run `action` at rank 0; raise UserError on every rank if it was refused.

        Rank 0 knows the reason in words.
        """
        refusal: OSError | None = None
        if self._learner.ranks.rank == 0:
            try:
                action()
            except OSError as error:
                refusal = error
        # On the host: no broadcast of weights is in its way there.
        number = torch.tensor([0 if refusal is None else refusal.errno or errno.EIO])
        dist.broadcast(number, src=0)
        if number.item():
            raise self._write_error(
                refusal or OSError(int(number.item()), os.strerror(int(number.item())))
            )

    def _write_error(self, error: OSError) -> UserError:
        location = self._storage.location
        reason = error.strerror or str(error)
        return refused_by_the_world(
            error,
            f"checkpoint folder {location} cannot be written ({reason}); {self._storage.remedy}",
        )
