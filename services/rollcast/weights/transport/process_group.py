"""A process group that touches none of torch.distributed's global state, with a deadline on every
wait.

    WeightGroup(..)     connect to the store -> meet the other members there -> connect to them ->
                        greet
        begin_broadcast(piece)
                        up to a few pieces travel at the same time
        wait_oldest()   wait for the oldest of them
        close()         NCCL: abort, which takes half a second. gloo: close the connections, which
                        wakes the peers

The collectives of the trainer and of vLLM are not affected: each group is made, used and dropped on
its own, under its own prefix of one TCPStore at trainer rank 0. CPUs use gloo, GPUs NCCL; the code
differs only in how a wait is bounded. Over gloo the bytes travel in host memory, also if the
version is on a GPU.

The store does not check credentials. It listens on rpc.bind only, and its prefix is random and sent
over gRPC only, so that other processes and former runs do not enter a group by accident. It does
not stop an attacker, who can list keys.
"""

import secrets
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from rollcast.config.errors import UserError
from rollcast.connections.http import listen, local_host
from rollcast.weights.plan.page_locked import page_locked
from rollcast.weights.plan.snapshot import new_pages
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.meeting import meet
from rollcast.weights.transport.nccl import make_nccl
from rollcast.wire import weights_pb2

Backend = Literal["gloo", "nccl"]
CPU = torch.device("cpu")
PIECES_IN_FLIGHT = 2
"""Pieces of one lane that travel at the same time: while one is on the wire, the next is copied and
its call is made. A third would only take more memory, since a copy to the device is faster than the
wire."""


@dataclass(frozen=True)
class GroupAddress:
    """How to enter a group, and with which rank."""

    epoch: int
    lane: int  # the trainer rank that sends
    num_lanes: int
    backend: Backend
    store_host: str
    store_port: int
    store_prefix: str
    rank: int  # 0 is the trainer rank
    world_size: int
    timeout_seconds: float  # of every piece, and of the connection to the store
    # 60.0: default of weights.opening_timeout_seconds.
    opening_seconds: float = 60.0  # of all lanes of the epoch together

    @classmethod
    def from_join(
        cls, join: weights_pb2.Join, lane: int, rank: int, backend: Backend
    ) -> "GroupAddress":
        """The group of one lane of a `Join` message, entered as `rank`."""
        return cls(
            epoch=join.epoch,
            lane=lane,
            num_lanes=join.lanes,
            backend=backend,
            store_host=join.store_host,
            store_port=join.store_port,
            store_prefix=join.store_prefix,
            rank=rank,
            world_size=join.world_size,
            timeout_seconds=join.timeout_seconds,
            opening_seconds=join.opening_timeout_seconds,
        )

    def error(self, reason: str) -> GroupError:
        """The error with which the group ends."""
        return GroupError(f"epoch {self.epoch}, lane {self.lane}: {reason}")


def backend_for(
    device: torch.device,
    transport: Literal["auto", "nccl", "gloo", "store"] = "auto",
    *,
    shares_gpu: bool = False,
) -> Backend:
    """The backend that carries the weights of a trainer rank on `device`. `transport`: the setting
    of weights.

    `shares_gpu`: a generator uses the same GPU. Raises UserError: NCCL is wanted and cannot work.
    """
    obstacle = why_not_nccl(device, shares_gpu=shares_gpu)
    if transport == "nccl" and obstacle:
        raise UserError(f"weights.transport = nccl: {obstacle}; set it to auto or gloo")
    return "gloo" if transport == "gloo" or obstacle else "nccl"


def why_not_nccl(device: torch.device, *, shares_gpu: bool) -> str:
    """The obstacle to NCCL here, in words; empty = NCCL works."""
    if device.type != "cuda":
        return "there is no GPU"
    if shares_gpu:
        return "generator and trainer share one GPU, and NCCL takes one process of a group on each"
    return "" if dist.is_nccl_available() else "this build of torch has no NCCL"


class RendezvousStore:
    """The TCPStore for the rendezvous of groups: listens on a free port of `bind` as long as it is
    referenced.
    """

    def __init__(self, bind: str) -> None:
        """Raises UserError if `bind` is not an address of this machine."""
        self.host = local_host(bind)
        """The address under which this machine reaches it."""
        self.prefix = secrets.token_urlsafe(16)
        listener = listen(bind, 0, setting="rpc.bind")
        self.port = int(listener.getsockname()[1])
        self._store = TCPStore(
            self.host,
            self.port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=30),
            master_listen_fd=listener.detach(),
        )


class WeightGroup:
    """One group. Blocking calls, made from one thread; `abandoned` may be set by any."""

    def __init__(
        self,
        address: GroupAddress,
        device: torch.device,
        abandoned: threading.Event | None = None,
        waited: float = 0.0,
    ) -> None:
        """Meet the other members. Raises GroupError if they do not come in time.

        device: where versions are. abandoned: set by another thread to end every wait that can be
        ended. waited: seconds of the opening that have passed already.
        """
        self.address = address
        # Both ends of a lane compute checksums on the device that the bytes travel between.
        self.device = CPU if address.backend == "gloo" else device
        self._page_locked = self.device.type != device.type
        self._scratch: dict[int, torch.Tensor] = {}
        self._abandoned = abandoned or threading.Event()
        self._timeout = timedelta(seconds=address.timeout_seconds)
        self._in_flight: deque[tuple[dist.Work, torch.Tensor]] = deque()
        self._group: Any = None
        self._store: PrefixStore | None = None
        self._version_device = device
        try:
            self._open(time.monotonic() + max(0.0, address.opening_seconds - waited))
        except (RuntimeError, ValueError) as error:
            self.close()
            raise self.address.error(f"rendezvous failed: {_first_line(error)}") from error

    @property
    def in_flight(self) -> int:
        """Pieces that were begun and not finished."""
        return len(self._in_flight)

    def scratch(self, index: int, size: int) -> torch.Tensor:
        """One of several memories for pieces on their way, uint8 [size]: new pages cost as much as
        writing them.
        """
        scratch_memory = self._scratch.get(index)
        if scratch_memory is None or scratch_memory.numel() < size:
            scratch_memory = self._new_memory(size)
            self._scratch[index] = scratch_memory
        return scratch_memory[:size]

    def begin_broadcast(self, piece: torch.Tensor) -> None:
        """Start to send (rank 0) or to fill (others) a uint8 buffer on `device`.

        Raises GroupError.
        """
        if self._abandoned.is_set():
            raise self.address.error("abandoned")
        try:
            # Kept until it is over: an aborted kernel may write until the abort has ended.
            self._in_flight.append((self._group.broadcast(piece, 0, timeout=self._timeout), piece))
        except RuntimeError as error:
            raise self.address.error(f"broadcast failed: {_first_line(error)}") from error

    def wait_oldest(self) -> None:
        """Wait for the oldest piece that was begun. Raises GroupError.

        At rank 0 the return proves nothing about delivery: bytes may still be in socket buffers.
        """
        try:
            self._wait(self._in_flight[0][0], self.address.timeout_seconds)
        except RuntimeError as error:
            raise self.address.error(f"broadcast failed: {_first_line(error)}") from error
        self._in_flight.popleft()

    def broadcast(self, piece: torch.Tensor) -> None:
        """Send or fill one buffer, after all that were begun. Raises GroupError."""
        self.begin_broadcast(piece)
        while self._in_flight:
            self.wait_oldest()

    def close(self) -> None:
        """Leave the group, after which it touches no memory; on the group's own thread, because it
        takes time.
        """
        self._abandoned.set()
        if self.address.backend == "nccl" and self._group is not None:
            self._group.abort()
        # gloo has no abort: its calls end at their deadlines. They are waited for here, because the
        # destructor of the group would do it without letting other threads of Python run.
        if self.address.backend == "gloo":
            for work, _ in self._in_flight:
                with suppress(RuntimeError):
                    work.wait(self._timeout)
        # Copies out of scratch memory are only queued.
        if self._version_device.type == "cuda":
            torch.cuda.current_stream(self._version_device).synchronize()
        self._group = None
        self._in_flight.clear()
        self._forget()

    def _forget(self) -> None:
        """Delete the lane's keys, because the store outlives all epochs.

        Whoever still connects would fail anyway.
        """
        if self.address.rank == 0 and self._store is not None:
            with suppress(RuntimeError):
                for key in self._store.list_keys():
                    self._store.delete_key(key)
        self._store = None

    def _new_memory(self, size: int) -> torch.Tensor:
        if self._page_locked:
            return page_locked(size)
        return (
            new_pages(size)
            if self.device.type == "cpu"
            else torch.empty(size, dtype=torch.uint8, device=self.device)
        )

    def _open(self, deadline: float) -> None:
        address = self.address
        connection = self._connect(deadline)
        store = PrefixStore(f"{address.store_prefix}/{address.epoch}/{address.lane}", connection)
        self._store = store
        meet(
            store,
            rank=address.rank,
            world_size=address.world_size,
            deadline=deadline,
            abandoned=self._abandoned,
        )
        if address.backend == "gloo":
            self._group = ProcessGroupGloo(store, address.rank, address.world_size, self._timeout)
        else:
            # Other members may be busy with their first use of NCCL.
            connection.set_timeout(timedelta(seconds=address.opening_seconds))
            self._group = make_nccl(
                store,
                rank=address.rank,
                world_size=address.world_size,
                num_lanes=address.num_lanes,
                opening_seconds=address.opening_seconds,
            )
        self._greet(deadline)

    def _connect(self, deadline: float) -> TCPStore:
        """A connection of its own: a store serves one caller at a time, and a rendezvous may wait
        in it.
        """
        host = self.address.store_host
        port = self.address.store_port
        # Deadline of one attempt to reach the store. torch looks names up meanwhile; of many
        # lookups at a time some get no answer, which costs five seconds.
        one_try = timedelta(seconds=10.0)
        while True:
            try:
                store = TCPStore(
                    host, port, is_master=False, wait_for_workers=False, timeout=one_try
                )
            except RuntimeError:
                if self._abandoned.is_set() or time.monotonic() > deadline:
                    raise
            else:
                store.set_timeout(self._timeout)
                return store

    def _greet(self, deadline: float) -> None:
        """Send a first word through the group. NCCL connects at its first collective only."""
        greeting = torch.tensor([self.address.epoch], dtype=torch.int64, device=self.device)
        sizes = [greeting]
        if self.address.backend == "nccl":
            # Size of NCCL's second greeting, as large as the smallest piece. CUDA loads a kernel at
            # its first use and then waits for running ones, so the kernels of pieces are loaded
            # while no other lane of the epoch moves.
            sizes.append(torch.zeros(1 << 20, dtype=torch.uint8, device=self.device))
        for tensor in sizes:
            work = self._group.broadcast(tensor, 0, timeout=self._timeout)
            self._in_flight.append((work, tensor))
            seconds = (
                max(0.0, deadline - time.monotonic())
                if self.address.backend == "nccl"
                else self.address.timeout_seconds
            )
            self._wait(work, seconds)
            self._in_flight.popleft()
        if greeting.item() != self.address.epoch:
            raise GroupError(f"met the group of epoch {greeting.item()}")

    def _wait(self, work: dist.Work, seconds: float) -> None:
        if self.address.backend == "gloo":
            work.wait(timedelta(seconds=seconds))
            return
        # NCCL's own wait blocks a stream, or this thread without an end that we choose.
        deadline = time.monotonic() + seconds
        while not work.is_completed():
            if self._abandoned.is_set():
                raise GroupError("abandoned")
            if time.monotonic() > deadline:
                raise GroupError(f"no progress for {seconds:.1f} s")
            # NCCL moves a bucket in less than a millisecond
            time.sleep(0.0002)
        # Raises what is_completed has found; otherwise orders the stream after the collective.
        work.wait()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
