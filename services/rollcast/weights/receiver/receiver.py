"""Reception of weights inside one engine worker, while the engine goes on generating.

    idle --join--> joining --> joined --receive--> receiving --> staged --apply/skip--> joined
                      \\__________________failed (until the next join)_____/
    abandon: from anywhere back to idle; what was half received, or staged and not applied, is discarded

Threads: the engine's own thread calls the methods, which return at once; each lane of an epoch a GroupWorker which
opens its group, fills its rows of the staged version and verifies their checksum. A worker that was abandoned may
still be inside a broadcast: the staged memory is used again only when it is over, else new one is made: a dead epoch
never writes into a live one.

The staged version lies on the device, where every worker has a receiver of its own and applying is quick; or once in
host memory that all workers of the generator share (`HostMemory`), where one receiver serves them all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import torch
from google.protobuf.message import DecodeError

from rollcast.weights.plan.manifest import BucketSpec, Manifest, ManifestError, manifest_from_proto
from rollcast.weights.plan.snapshot import Snapshot, memory_bytes
from rollcast.weights.receiver.receive_state import FAILED, JOINED, JOINING, RECEIVING, STAGED, ReceiveState
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import receive, turns_of
from rollcast.weights.transport.process_group import GroupAddress, GroupError, NoRoomError, WeightGroup, backend_for
from rollcast.weights.transport.turns import LaneTurns
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

MAX_LANES = 4096


class StageMemory(Protocol):
    """Where versions are staged."""

    def snapshot(self, specs: tuple[BucketSpec, ...]) -> Snapshot:
        """New memory for a version; that of an earlier call is given up. Raises NoRoomError."""
        ...


class DeviceMemory:
    """Memory of one worker's own device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def snapshot(self, specs: tuple[BucketSpec, ...]) -> Snapshot:
        try:
            return Snapshot.on(self._device, specs)
        except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is one of the latter
            raise NoRoomError(
                f"weights.stage = device: a version of {memory_bytes(specs) / 1e9:.1f} GB does not fit beside the "
                f"engine on {self._device}; set it to host, or lower generator.gpu_memory_utilization"
            ) from error


class Receiver:
    """Lives in one worker process; every method returns at once, so the engine keeps stepping.

    All arguments and results survive any RPC: messages are the serialised protobuf (`join.SerializeToString()`).

        receiver = Receiver(device=worker.device)                # once per worker, or per generator
        receiver.join(join_bytes, worker=tensor_parallel_rank)   # opens the lanes in the background
        receiver.poll()                                          # ("joining" | "joined" | "failed", ...)
        receiver.receive(publish_bytes)                          # receives in the background into staged memory
        receiver.poll()                                          # ("receiving" | "staged" | "failed", ...)
        receiver.apply(model.load_weights)                       # under the engine's pause; only when staged
        receiver.abandon()                                       # forget the lanes and what was half received
    """

    def __init__(self, *, device: torch.device, memory: StageMemory | None = None) -> None:
        """device: that the groups receive on. memory: None = of that device."""
        self._device = device
        self._memory = memory or DeviceMemory(device)
        self._lock = threading.Lock()
        self._state = ReceiveState()
        self._lanes: list[GroupWorker] = []
        self._owing = 0
        self._retired: list[GroupWorker] = []
        self._staged: Snapshot | None = None

    def join(self, join: bytes, worker: int) -> None:
        """Start to enter the lanes of a `Join` message; `worker` is this receiver's index within its generator."""
        self.abandon()
        message = weights_pb2.Join.FromString(join)
        fits = message.rank + worker < message.world_size and 0 < message.lanes <= MAX_LANES
        if message.backend not in ("gloo", "nccl") or not fits:
            self._state = ReceiveState(FAILED, message.epoch, reason="the join message contradicts itself")
            return
        if message.backend != backend_for(self._device):  # both ends make their checksums on one kind of device
            reason = f"the trainer sends over {message.backend}, which this generator on {self._device} cannot receive"
            self._state = ReceiveState(FAILED, message.epoch, reason=reason)
            return
        addresses = [
            GroupAddress(
                epoch=message.epoch,
                lane=lane,
                num_lanes=message.lanes,
                backend=message.backend,
                store_host=message.store_host,
                store_port=message.store_port,
                store_prefix=message.store_prefix,
                rank=message.rank + worker,
                world_size=message.world_size,
                timeout_seconds=message.timeout_seconds,
            )
            for lane in range(message.lanes)
        ]
        with self._lock:
            self._state = ReceiveState(JOINING, message.epoch)
            lanes = self._lanes = [GroupWorker(address, self._device) for address in addresses]
            self._owing = len(lanes)
        success = ReceiveState(JOINED, message.epoch)
        for lane in lanes:
            lane.opened.add_done_callback(partial(self._lane_ended, lanes, success, None, time.perf_counter()))

    def receive(self, publish: bytes) -> None:
        """Start to receive the version of a `Publish` message. Errors show up in `poll`."""
        with self._lock:
            lanes, epoch = self._lanes, self._state.epoch
            try:
                message = weights_pb2.Publish.FromString(publish)
                if self._state.status != JOINED or message.epoch != epoch:
                    raise GroupError(f"asked to receive in epoch {message.epoch} while {self._state.status} in {epoch}")
                manifest = manifest_from_proto(message.manifest)
            except (DecodeError, ManifestError, GroupError) as error:
                self._state = ReceiveState(FAILED, epoch, reason=str(error))
                return
            self._state = ReceiveState(RECEIVING, epoch)
            self._owing = len(lanes)
        base = PolicyVersion.from_proto(message.base) if message.HasField("base") else None
        success, started = ReceiveState(STAGED, epoch), time.perf_counter()
        # The first lane makes the memory, on its own thread, since that may take long; the others follow it.
        whole: Future[tuple[Snapshot, LaneTurns]] = Future()
        for lane in lanes:
            taken = lane.submit(partial(self._take, lanes, manifest, base, whole))
            taken.add_done_callback(partial(self._lane_ended, lanes, success, manifest.version, started))

    @property
    def path(self) -> str:
        """Where other processes find what is staged; empty = nowhere."""
        staged = self._staged
        return "" if staged is None else staged.path

    def poll(self) -> ReceiveState:
        with self._lock:
            return self._state

    def apply(self, load_weights: Callable[[Iterable[tuple[str, torch.Tensor]]], object]) -> None:
        """Hand every (name, tensor) to `load_weights`, in order. The engine must be paused.

        Asserts that a version is staged: complete and its checksums verified. The tensors are views of memory that the
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
        """Leave the lanes and forget what was half received. Safe in any state."""
        with self._lock:
            lanes, self._lanes, self._state = self._lanes, [], ReceiveState()
        for lane in lanes:
            lane.abandon()
        self._retired = [old for old in (*self._retired, *lanes) if not old.ended()]

    def _lane_ended(
        self,
        lanes: list[GroupWorker],
        success: ReceiveState,
        version: PolicyVersion | None,
        started: float,
        future: Future[None],
    ) -> None:
        """One lane is open, or has brought its rows; the last one is success, the first that failed is failure."""
        error = future.exception()
        with self._lock:
            if lanes is not self._lanes or self._state.status == FAILED:
                return  # abandoned: its outcome concerns nobody
            self._owing -= 1
            if error is not None:
                self._state = ReceiveState(
                    FAILED, success.epoch, reason=str(error), no_room=isinstance(error, NoRoomError)
                )
            elif self._owing == 0:
                seconds = time.perf_counter() - started if success.status == STAGED else 0.0
                self._state = success._replace(seconds=seconds)
                if version is not None and self._staged is not None:
                    self._staged.version = version

    def _take(
        self,
        lanes: list[GroupWorker],
        manifest: Manifest,
        base: PolicyVersion | None,
        whole: Future[tuple[Snapshot, LaneTurns]],
        group: WeightGroup,
    ) -> None:
        """On the lane's thread: fill its rows and verify them."""
        patience_seconds = group.address.timeout_seconds
        if group.address.lane == 0:
            try:
                turns = turns_of(manifest.buckets, group.address.num_lanes)
                whole.set_result((self._stage(lanes, manifest.buckets, base, patience_seconds / 2), turns))
            except BaseException as error:
                whole.set_exception(error)
        try:
            staged, turns = whole.result(patience_seconds)
        except TimeoutError:
            raise GroupError(f"no memory for version {manifest.version} within {patience_seconds:g} s") from None
        turn = partial(turns.turn, group.address.lane, patience_seconds)
        receive(group, staged, manifest.version, is_base=base is not None, turn=turn)

    def _stage(
        self,
        lanes: list[GroupWorker],
        specs: tuple[BucketSpec, ...],
        base: PolicyVersion | None,
        patience_seconds: float,
    ) -> Snapshot:
        """Memory to receive into, which holds `base` where one is given."""
        deadline = time.monotonic() + patience_seconds
        retired = list(self._retired)
        free = all(old.ended(max(0.0, deadline - time.monotonic())) for old in retired)
        staged = self._staged
        if staged is None or staged.specs != specs or not free:
            staged = None
            self._keep(lanes, None)  # released before its successor is made
            try:
                staged = self._memory.snapshot(specs)
            except NoRoomError as error:
                if free:
                    raise
                raise GroupError(f"a broken epoch still holds its memory: {error}") from error
            self._keep(lanes, staged)
        if base is not None and staged.version != base:
            raise GroupError(f"changes since {base} were announced, {staged.version} is held")
        staged.version = None
        return staged

    def _keep(self, lanes: list[GroupWorker], staged: Snapshot | None) -> None:
        """An abandoned epoch that is slow to make its memory takes nothing from its successor."""
        with self._lock:
            if lanes is not self._lanes:
                raise GroupError("abandoned")
            self._staged = staged
