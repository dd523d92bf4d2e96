"""Reception of weights inside one engine worker, while the engine goes on generating.

    idle --join--> joining --> joined --receive--> receiving --> staged --apply/skip--> joined
                      \\__________________failed (until the next join)_____/
    abandon: from anywhere back to idle; what was half received, or staged and not applied, is discarded

Threads: the engine's own thread calls the methods, which return at once; one GroupWorker per epoch opens the group,
fills the staged buffers and verifies the checksum. A worker that was abandoned may still be inside a broadcast: the
staged buffers are used again only when it is over, else new ones are made: a dead epoch never writes into a live one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import cast

import torch
from google.protobuf.message import DecodeError

from rollcast.weights.group_worker import GroupWorker
from rollcast.weights.manifest import BucketSpec, Manifest, ManifestError, manifest_from_proto
from rollcast.weights.process_group import Backend, GroupAddress, GroupError, WeightGroup
from rollcast.weights.receive_state import FAILED, JOINED, JOINING, RECEIVING, STAGED, ReceiveState
from rollcast.weights.snapshot import Snapshot
from rollcast.wire import weights_pb2


class Receiver:
    """Lives in one worker process; every method returns at once, so the engine keeps stepping.

    All arguments and results survive any RPC: messages are the serialised protobuf (`join.SerializeToString()`).

        receiver = Receiver(device=worker.device)                # once per worker
        receiver.join(join_bytes, worker=tensor_parallel_rank)   # opens the group in the background
        receiver.poll()                                          # ("joining" | "joined" | "failed", ...)
        receiver.receive(publish_bytes)                          # receives in the background into staged buffers
        receiver.poll()                                          # ("receiving" | "staged" | "failed", ...)
        receiver.apply(model.load_weights)                       # under the engine's pause; only when staged
        receiver.abandon()                                       # forget the group and what was half received
    """

    def __init__(self, *, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._state = ReceiveState()
        self._worker: GroupWorker | None = None
        self._retired: list[GroupWorker] = []
        self._staged: Snapshot | None = None

    def join(self, join: bytes, worker: int) -> None:
        """Start to enter the group of a `Join` message; `worker` is this worker's index within its generator."""
        self.abandon()
        message = weights_pb2.Join.FromString(join)
        if message.backend not in ("gloo", "nccl") or message.rank + worker >= message.world_size:
            self._state = ReceiveState(FAILED, message.epoch, reason="the join message contradicts itself")
            return
        address = GroupAddress(
            epoch=message.epoch,
            backend=cast(Backend, message.backend),
            store_host=message.store_host,
            store_port=message.store_port,
            store_prefix=message.store_prefix,
            rank=message.rank + worker,
            world_size=message.world_size,
            timeout_seconds=message.timeout_seconds,
        )
        with self._lock:
            self._state = ReceiveState(JOINING, message.epoch)
            group_worker = self._worker = GroupWorker(address, self._device)
        group_worker.opened.add_done_callback(partial(self._opened, group_worker))

    def receive(self, publish: bytes) -> None:
        """Start to receive the version of a `Publish` message. Errors show up in `poll`."""
        with self._lock:
            worker, epoch = self._worker, self._state.epoch
            try:
                message = weights_pb2.Publish.FromString(publish)
                if worker is None or self._state.status != JOINED or message.epoch != epoch:
                    raise GroupError(f"asked to receive in epoch {message.epoch} while {self._state.status} in {epoch}")
                manifest = manifest_from_proto(message.manifest)
            except (DecodeError, ManifestError, GroupError) as error:
                self._state = ReceiveState(FAILED, epoch, reason=str(error))
                return
            self._state = ReceiveState(RECEIVING, epoch)
        worker.submit(partial(self._take, manifest)).add_done_callback(partial(self._received, worker))

    def poll(self) -> ReceiveState:
        with self._lock:
            return self._state

    def apply(self, load_weights: Callable[[Iterable[tuple[str, torch.Tensor]]], object]) -> None:
        """Hand every (name, tensor) to `load_weights`, in order. The engine must be paused.

        Asserts that a version is staged: complete and its checksum verified. The tensors are views of buffers that the
        next reception overwrites: copy, do not keep.
        """
        assert self._state.status == STAGED, self._state
        assert self._staged is not None
        with torch.no_grad():
            load_weights(self._staged.views())
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self.skip()

    def skip(self) -> None:
        """Drop a staged version without applying it: the engine holds it already."""
        with self._lock:
            assert self._state.status == STAGED, self._state
            self._state = ReceiveState(JOINED, self._state.epoch)

    def abandon(self) -> None:
        """Leave the group and forget what was half received. Safe in any state."""
        with self._lock:
            worker, self._worker, self._state = self._worker, None, ReceiveState()
        if worker is not None:
            worker.abandon()
            self._retired = [old for old in (*self._retired, worker) if not old.ended()]

    def _opened(self, worker: GroupWorker, opened: Future[None]) -> None:
        self._note_outcome(worker, opened, ReceiveState(JOINED, worker.address.epoch))

    def _received(self, worker: GroupWorker, received: Future[float]) -> None:
        seconds = received.result() if received.exception() is None else 0.0
        self._note_outcome(worker, received, ReceiveState(STAGED, worker.address.epoch, seconds))

    def _note_outcome(self, worker: GroupWorker, future: Future[float] | Future[None], success: ReceiveState) -> None:
        error = future.exception()
        with self._lock:
            if worker is self._worker:  # else it was abandoned: its outcome concerns nobody
                self._state = success if error is None else ReceiveState(FAILED, success.epoch, reason=str(error))

    def _take(self, manifest: Manifest, group: WeightGroup) -> float:
        """On the group's thread: fill the staged buffers, verify; returns the seconds it took."""
        started = time.perf_counter()
        snapshot = self._buffers(manifest.buckets, group.address.timeout_seconds / 2)
        snapshot.version = None
        group.broadcast(snapshot.buffers)
        found = snapshot.checksum()
        if found != manifest.checksum:
            raise GroupError(f"version {manifest.version}: checksum {found:016x}, expected {manifest.checksum:016x}")
        snapshot.version = manifest.version
        return time.perf_counter() - started

    def _buffers(self, specs: tuple[BucketSpec, ...], patience_seconds: float) -> Snapshot:
        deadline = time.monotonic() + patience_seconds
        retired = list(self._retired)
        free = all(old.ended(max(0.0, deadline - time.monotonic())) for old in retired)
        if self._staged is None or self._staged.specs != specs or not free:
            self._staged = None  # released before its successor is made
            self._staged = Snapshot(specs, self._device)
        return self._staged
