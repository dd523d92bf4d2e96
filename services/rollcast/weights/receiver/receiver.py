"""Reception of weights inside one engine worker, while the engine goes on generating.

    idle --join--> joining --> joined --receive--> receiving --> staged --apply/skip--> joined
                      \\__________________failed (until the next join)_____/
    abandon: from any state back to idle; a version that was half received, or not applied yet, is
             discarded

Threads: the engine's own thread calls the methods, which return immediately. Each lane of an epoch
has a GroupWorker, which opens its group, fills its rows of the staged version and verifies their
checksum. The lanes open one by one, in the same order at every receiver. An abandoned worker may
still be inside a broadcast. The staged memory is used again only when that worker no longer touches
it, else new memory is made: a dead epoch never writes into a live one.

The staged version is either on the device, where every worker has its own receiver and applying is
quick, or once in host memory that all workers of the generator share (`in_host_memory`); then one
receiver serves them all.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

import torch
from google.protobuf.message import DecodeError

from rollcast.connections.object_files import ObjectFolder
from rollcast.weights.plan.manifest import BucketSpec, Manifest, ManifestError, manifest_from_proto
from rollcast.weights.plan.snapshot import Snapshot, memory_bytes
from rollcast.weights.receiver.store_pull import PulledVersion, StorePull
from rollcast.weights.receiver.weight_engine import (
    FAILED,
    JOINED,
    JOINING,
    RECEIVING,
    STAGED,
    ReceiveState,
)
from rollcast.weights.transport.errors import GroupError, NoRoomError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import plan_turns, receive
from rollcast.weights.transport.process_group import Backend, GroupAddress, WeightGroup, backend_for
from rollcast.weights.transport.turns import LaneTurns
from rollcast.wire import weights_pb2


def on_device(device: torch.device, specs: tuple[BucketSpec, ...]) -> Snapshot:
    """New memory of one worker's own device. Raises NoRoomError."""
    try:
        return Snapshot.on(device, specs)
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is one of the latter
        raise NoRoomError(
            f"weights.stage = device: a version of {memory_bytes(specs) / 1e9:.1f} GB does not fit "
            "next to the "
            f"engine on {device}; set it to host, or lower generator.gpu_memory_utilization"
        ) from error


class Receiver:
    """Lives in one worker process; every method returns immediately, so the engine keeps stepping.

    All arguments and results survive any RPC: messages are the serialised protobuf
    (`join.SerializeToString()`).
    """

    def __init__(
        self,
        *,
        device: torch.device,
        worker: int = 0,
        make_memory: Callable[[tuple[BucketSpec, ...]], Snapshot] | None = None,
        store: ObjectFolder | None = None,
    ) -> None:
        """device: where groups receive. worker: index of this receiver in the generator.

        make_memory: makes the memory to stage in, when that of an earlier call was released; None =
        on `device`.
        """
        self._device = device
        self._worker = worker
        self._make_memory = make_memory or partial(on_device, device)
        self._lock = threading.Lock()
        self._state = ReceiveState()
        self._lanes: list[GroupWorker] = []
        self._lanes_pending = 0
        self._lanes_abandoned: list[GroupWorker] = []
        self._staged: Snapshot | None = None
        self._store = None if store is None else StorePull(store, self._make_memory)
        self._pulling: Future[PulledVersion] | None = None

    def join(self, join: bytes) -> None:
        """Start to enter the lanes of a `Join` message."""
        self.abandon()
        message = weights_pb2.Join.FromString(join)
        rank = message.rank + self._worker
        # A damaged message may ask for any number
        fits = rank < message.world_size and 0 < message.lanes <= 4096
        if message.backend not in ("gloo", "nccl") or not fits:
            self._state = ReceiveState(
                FAILED, message.epoch, reason="the join message contradicts itself"
            )
            return
        backend: Backend = "nccl" if message.backend == "nccl" else "gloo"
        # gloo carries the bytes through host memory, whatever they are received for.
        if backend == "nccl" and backend_for(self._device) != "nccl":
            reason = (
                f"the trainer sends over {backend}, which this generator on {self._device} cannot "
                "receive"
            )
            self._state = ReceiveState(FAILED, message.epoch, reason=reason)
            return
        lanes: list[GroupWorker] = []
        for number in range(message.lanes):
            address = GroupAddress.from_join(message, number, rank, backend)
            lanes.append(GroupWorker(address, self._device, lanes[-1] if lanes else None))
        with self._lock:
            self._state = ReceiveState(JOINING, message.epoch)
            self._lanes = lanes
            self._lanes_pending = len(lanes)
        success = ReceiveState(JOINED, message.epoch)
        for lane in lanes:
            lane.opened.add_done_callback(partial(self._lane_ended, lanes, success, 0.0))

    def receive(self, publish: bytes) -> None:
        """Start to receive the version of a `Publish` message. Errors show up in `poll`."""
        if self._store is not None:
            self._begin_pull(self._store, publish)
            return
        with self._lock:
            lanes = self._lanes
            epoch = self._state.epoch
            try:
                message = weights_pb2.Publish.FromString(publish)
                if self._state.status != JOINED or message.epoch != epoch:
                    raise GroupError(
                        f"asked to receive in epoch {message.epoch} while {self._state.status} in "
                        f"{epoch}"
                    )
                manifest = manifest_from_proto(message.manifest)
            except (DecodeError, ManifestError, GroupError) as error:
                self._state = ReceiveState(FAILED, epoch, reason=str(error))
                return
            self._state = ReceiveState(RECEIVING, epoch)
            self._lanes_pending = len(lanes)
        success = ReceiveState(STAGED, epoch)
        started_at = time.perf_counter()
        # Lane 0 makes the memory on its own thread, because that may take long; the other lanes
        # wait for it.
        staging_future: Future[tuple[Snapshot, LaneTurns]] = Future()
        for lane in lanes:
            received = lane.submit(partial(self._receive_lane, lanes, manifest, staging_future))
            received.add_done_callback(partial(self._lane_ended, lanes, success, started_at))

    def _begin_pull(self, store: StorePull, publish: bytes) -> None:
        epoch = 0
        try:
            message = weights_pb2.Publish.FromString(publish)
            epoch = message.epoch
            manifest = manifest_from_proto(message.manifest)
            if not message.stored:
                raise GroupError("the trainer sends versions over lanes, not through a store")
        except (DecodeError, ManifestError, GroupError) as error:
            self._state = ReceiveState(FAILED, epoch, reason=str(error))
            return
        with self._lock:
            self._state = ReceiveState(RECEIVING, epoch)
            self._pulling = pulling = store.begin(manifest, list(message.stored))
        started_at = time.perf_counter()
        pulling.add_done_callback(partial(self._pull_ended, epoch, started_at))

    def _pull_ended(self, epoch: int, started_at: float, pulling: Future[PulledVersion]) -> None:
        error = pulling.exception()
        with self._lock:
            # Abandoned, or followed by another one.
            if pulling is not self._pulling:
                return
            if error is not None:
                no_room = isinstance(error, NoRoomError)
                self._state = ReceiveState(FAILED, epoch, reason=str(error), no_room=no_room)
                return
            pulled = pulling.result()
            self._staged = pulled.staged
            self._state = ReceiveState(
                STAGED,
                epoch,
                seconds=time.perf_counter() - started_at,
                path=pulled.staged.path,
                num_bytes=pulled.num_bytes,
            )

    def poll(self) -> ReceiveState:
        with self._lock:
            if self._store is not None and self._state.status == RECEIVING:
                return self._state._replace(num_bytes=self._store.num_bytes)
            return self._state

    def apply(self, load_weights: Callable[[Iterable[tuple[str, torch.Tensor]]], object]) -> None:
        """Hand every (name, tensor) to `load_weights`, in order. The engine must be paused.

        The tensors are views of memory that the next reception overwrites: copy, do not keep.
        """
        # Only a version that is complete, with verified checksums, may reach the model.
        assert self._state.status == STAGED, self._state
        assert self._staged is not None
        with torch.no_grad():
            load_weights(self._staged.views())
        # Copies are queued on the engine's stream: before they end, their source must not be
        # received into again.
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self.skip()

    def skip(self) -> None:
        """Drop a staged version without applying it: the engine holds it already."""
        with self._lock:
            assert self._state.status == STAGED, self._state
            self._state = ReceiveState(JOINED, self._state.epoch)

    def abandon(self) -> None:
        """Leave the lanes and discard a half received version. Safe in any state."""
        with self._lock:
            lanes = self._lanes
            self._lanes = []
            self._state = ReceiveState()
            self._pulling = None
        if self._store is not None:
            self._store.cancel()
        for lane in lanes:
            lane.abandon()
        with self._lock:
            self._lanes_abandoned = [
                lane for lane in (*self._lanes_abandoned, *lanes) if not lane.wait_released()
            ]

    def _lane_ended(
        self,
        lanes: list[GroupWorker],
        success: ReceiveState,
        started_at: float,
        future: Future[None],
    ) -> None:
        """One lane is open, or has received its rows.

        The last lane makes it a success, a failed one a failure.
        """
        error = future.exception()
        with self._lock:
            # Abandoned, or another lane has failed: a late lane must not overwrite the state of the
            # next epoch.
            if lanes is not self._lanes or self._state.status == FAILED:
                return
            self._lanes_pending -= 1
            if error is not None:
                self._state = ReceiveState(
                    FAILED, success.epoch, reason=str(error), no_room=isinstance(error, NoRoomError)
                )
            elif self._lanes_pending == 0 and success.status == STAGED:
                assert self._staged is not None
                self._state = success._replace(
                    seconds=time.perf_counter() - started_at, path=self._staged.path
                )
            elif self._lanes_pending == 0:
                self._state = success

    def _receive_lane(
        self,
        lanes: list[GroupWorker],
        manifest: Manifest,
        staging_future: Future[tuple[Snapshot, LaneTurns]],
        group: WeightGroup,
    ) -> None:
        """On the lane's thread: fill its rows and verify them."""
        patience_seconds = group.address.timeout_seconds
        if group.address.lane == 0:
            try:
                turns = plan_turns(manifest.buckets, group.address.num_lanes)
                staging_future.set_result(
                    (self._stage(lanes, manifest.buckets, patience_seconds / 2), turns)
                )
            except BaseException as error:
                staging_future.set_exception(error)
        try:
            staged, turns = staging_future.result(patience_seconds)
        except TimeoutError:
            raise GroupError(
                f"no memory for version {manifest.version} within {patience_seconds:g} s"
            ) from None
        receive(group, staged, manifest.version, turns)

    def _stage(
        self, lanes: list[GroupWorker], specs: tuple[BucketSpec, ...], patience_seconds: float
    ) -> Snapshot:
        """Memory to receive into: the former one if no abandoned lane can still write into it, else
        new memory.
        """
        deadline = time.monotonic() + patience_seconds
        with self._lock:
            abandoned = list(self._lanes_abandoned)
        free = all(lane.wait_released(max(0.0, deadline - time.monotonic())) for lane in abandoned)
        staged = self._staged
        if staged is None or staged.specs != specs or not free:
            staged = None
            # Released first: there may be no room for two versions.
            self._keep(lanes, None)
            try:
                staged = self._make_memory(specs)
            except NoRoomError as error:
                if free:
                    raise
                raise GroupError(f"a broken epoch still holds its memory: {error}") from error
            self._keep(lanes, staged)
            # They write into the former memory, if at all, and must not cost every later epoch new
            # memory.
            with self._lock:
                self._lanes_abandoned = [
                    lane for lane in self._lanes_abandoned if lane not in abandoned
                ]
        return staged

    def _keep(self, lanes: list[GroupWorker], staged: Snapshot | None) -> None:
        """Raises GroupError if the epoch was abandoned: it must not replace the memory of its
        successor.
        """
        with self._lock:
            if lanes is not self._lanes:
                raise GroupError("abandoned")
            self._staged = staged
