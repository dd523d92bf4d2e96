"""A process group that touches none of torch.distributed's global state, with a deadline on every wait.

The collectives of the trainer and of vLLM are not affected: each group is made, used and dropped on its own, under its
own prefix of one TCPStore at trainer rank 0. CPUs use gloo, GPUs NCCL; the code differs only in how a wait is bounded.

The store does not check credentials. It listens on rpc.bind only, and its prefix is random and sent over gRPC only, so
that other processes and former runs do not enter a group by accident. It does not stop an attacker, who can list keys.
"""

import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from rollcast.config.errors import UserError
from rollcast.connections.http import listen, local_host

Backend = Literal["gloo", "nccl"]
MAX_NCCL_CHANNELS = 32
"""NCCL channels of all lanes at one receiver, at least one each. NCCL itself chooses how many a single lane has."""
NCCL_POLL_SECONDS = 0.0002
_NCCL_OWN_TIMEOUT = timedelta(days=1)
"""NCCL's watchdog kills the process when it fires, so our own deadline must always be earlier."""


class GroupError(RuntimeError):
    """The group is broken: a member died, froze, or does not belong to it."""


class NoRoomError(GroupError):
    """There is not enough memory to stage a version, or to send or receive it."""


@dataclass(frozen=True)
class GroupAddress:
    """How to enter a group, and with which rank. `timeout_seconds` bounds the rendezvous and every piece."""

    epoch: int
    lane: int  # the trainer rank that sends
    num_lanes: int
    backend: Backend
    store_host: str
    store_port: int
    store_prefix: str
    rank: int  # 0 is the trainer rank
    world_size: int
    timeout_seconds: float


def backend_for(
    device: torch.device, transport: Literal["auto", "nccl", "gloo"] = "auto", *, shares_gpu: bool = False
) -> Backend:
    """What carries the weights of a trainer rank on `device`. `transport`: the setting of weights.

    `shares_gpu`: a generator uses the same GPU. Raises UserError: NCCL is wanted and cannot work.
    """
    obstacle = why_not_nccl(device, shares_gpu=shares_gpu)
    if transport == "nccl" and obstacle:
        raise UserError(f"weights.transport = nccl: {obstacle}; set it to auto or gloo")
    return "gloo" if transport == "gloo" or obstacle else "nccl"


def why_not_nccl(device: torch.device, *, shares_gpu: bool) -> str:
    """What keeps NCCL from working here, in words; empty = nothing."""
    if device.type != "cuda":
        return "there is no GPU"
    if shares_gpu:
        return "generator and trainer share one GPU, and NCCL takes one process of a group on each"
    return "" if dist.is_nccl_available() else "this build of torch has no NCCL"


class RendezvousStore:
    """The TCPStore for the rendezvous of groups: listens on a free port of `bind` as long as it is referenced."""

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
    """One group. Blocking calls, made from one thread; `abort` from any."""

    def __init__(self, address: GroupAddress, device: torch.device) -> None:
        """Meet the other members. Raises GroupError if they do not come in time."""
        self.address = address
        self.device = device
        self._scratch = torch.empty(0, dtype=torch.uint8, device=device)
        self._aborted = False
        self._timeout = timedelta(seconds=address.timeout_seconds)
        try:
            # A connection of its own: a store serves one caller at a time, and a rendezvous may wait in it.
            store = TCPStore(
                address.store_host, address.store_port, is_master=False, wait_for_workers=False, timeout=self._timeout
            )
            prefix = f"{address.store_prefix}/{address.epoch}/{address.lane}"
            self._group = _make(address, PrefixStore(prefix, store), self._timeout)
            # NCCL connects at its first collective only, so a greeting makes absent members known now.
            greeting = torch.tensor([address.epoch], dtype=torch.int64, device=device)
            self._broadcast(greeting)
        except (RuntimeError, ValueError) as error:
            raise GroupError(f"epoch {address.epoch}: rendezvous failed: {_first_line(error)}") from error
        if greeting.item() != address.epoch:
            raise GroupError(f"epoch {address.epoch}: met the group of epoch {greeting.item()}")

    def scratch(self, size: int) -> torch.Tensor:
        """Memory for a piece on its way, uint8 [size]. Kept, because new pages cost as much as writing them."""
        if self._scratch.numel() < size:
            self._scratch = torch.empty(size, dtype=torch.uint8, device=self.device)
        return self._scratch[:size]

    def broadcast(self, piece: torch.Tensor) -> None:
        """Send (rank 0) or fill (others) a uint8 buffer on the group's device. Raises GroupError.

        At rank 0 the return proves nothing about delivery: bytes may still be in socket buffers.
        """
        if self._aborted:
            raise GroupError(f"epoch {self.address.epoch}: abandoned")
        try:
            self._broadcast(piece)
        except RuntimeError as error:
            raise GroupError(f"epoch {self.address.epoch}: broadcast failed: {_first_line(error)}") from error

    def abort(self) -> None:
        """Send and receive no further piece."""
        self._aborted = True
        # NCCL breaks the group immediately. A wait inside gloo cannot be woken: it ends at its own deadline.
        if self.address.backend == "nccl":
            self._group.abort()

    def _broadcast(self, tensor: torch.Tensor) -> None:
        work = self._group.broadcast(tensor, 0, timeout=self._timeout)
        if self.address.backend == "gloo":
            work.wait(self._timeout)
            return
        # An NCCL wait only blocks the stream, so completion is polled, and an overdue group is aborted.
        deadline = time.monotonic() + self.address.timeout_seconds
        while not work.is_completed():
            if time.monotonic() > deadline:
                self._group.abort()
                raise GroupError(f"no progress for {self.address.timeout_seconds} s")
            time.sleep(NCCL_POLL_SECONDS)
        work.wait()


def _make(address: GroupAddress, store: Any, timeout: timedelta) -> Any:
    if address.backend == "gloo":
        return ProcessGroupGloo(store, address.rank, address.world_size, timeout)
    from torch.distributed import ProcessGroupNCCL  # absent from CPU builds of torch

    options = ProcessGroupNCCL.Options()
    options._timeout = _NCCL_OWN_TIMEOUT
    # Each channel has buffers of its own at both ends, and a receiver is in every lane.
    if address.num_lanes > 1:
        options.config.max_ctas = max(1, MAX_NCCL_CHANNELS // address.num_lanes)
    return ProcessGroupNCCL(store, address.rank, address.world_size, options)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
