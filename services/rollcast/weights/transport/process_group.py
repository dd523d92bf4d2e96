"""A process group that touches none of torch.distributed's global state, with a deadline on every wait.

The trainer's own collectives and vLLM's stay untouched: groups are made, used and dropped one by one, each under its
own prefix of one TCPStore that lives at trainer rank 0. gloo serves CPU, NCCL serves GPU; the code is the same but for
how a wait is bounded. gloo bounds it itself (`abort` does not wake it). An NCCL wait only blocks a stream, so there
completion is polled and an overdue group is aborted.

The store asks nobody for credentials. It listens where rpc.bind says and no further, and the prefix is random and told
over gRPC only: strangers and former runs meet no group by accident. It stops no attacker, who can list the keys.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from rollcast.connections.http import listen, local_host

Backend = Literal["gloo", "nccl"]
MOST_CHANNELS = 32
"""Of NCCL, at one receiver over all lanes; one lane at least. A lane alone has as many as NCCL chooses."""
_NCCL_OWN_TIMEOUT = timedelta(days=1)
"""NCCL's watchdog kills the process when it fires: ours must always be first."""


class GroupError(RuntimeError):
    """The group is broken: a member died, froze, or does not belong to it."""


class NoRoomError(GroupError):
    """A version does not fit where it should be staged, or on its way there."""


@dataclass(frozen=True)
class GroupAddress:
    """Where and as whom to enter a group. `timeout_seconds` bounds the rendezvous and every piece."""

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


def backend_for(device: torch.device) -> Backend:
    return "nccl" if device.type == "cuda" else "gloo"


class RendezvousStore:
    """The TCPStore that groups meet at: listens on a free port of `bind` for as long as it is referenced."""

    def __init__(self, bind: str) -> None:
        """Raises UserError where `bind` is no address of this machine."""
        self.host = local_host(bind)
        """As this machine reaches it."""
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


class Scratch:
    """Memory that pieces pass through, grown as needed and kept: new pages cost as much as what is written to them."""

    def __init__(self, device: torch.device) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)

    def of(self, size: int) -> torch.Tensor:
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8, device=self._memory.device)
        return self._memory[:size]


class WeightGroup:
    """One group. Blocking calls, made from one thread; `abort` from any."""

    def __init__(self, address: GroupAddress, device: torch.device) -> None:
        """Meet the others. Raises GroupError when they do not come in time."""
        self.address = address
        self.device = device
        self.scratch = Scratch(device)
        self._aborted = False
        self._timeout = timedelta(seconds=address.timeout_seconds)
        try:
            # Own connection: a store serialises its callers, and a rendezvous may wait in it.
            store = TCPStore(
                address.store_host, address.store_port, is_master=False, wait_for_workers=False, timeout=self._timeout
            )
            self._group = _make(
                address, PrefixStore(f"{address.store_prefix}/{address.epoch}/{address.lane}", store), self._timeout
            )
            greeting = torch.tensor([address.epoch], dtype=torch.int64, device=device)
            self._broadcast(greeting)  # NCCL connects at its first collective
        except (RuntimeError, ValueError) as error:
            raise GroupError(f"epoch {address.epoch}: rendezvous failed: {_first_line(error)}") from error
        if greeting.item() != address.epoch:
            raise GroupError(f"epoch {address.epoch}: met the group of epoch {greeting.item()}")

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
        """Break the group at once where the backend can (NCCL); gloo's waits end at their own deadline.

        No further piece is sent or received.
        """
        self._aborted = True
        if self.address.backend == "nccl":
            self._group.abort()

    def _broadcast(self, tensor: torch.Tensor) -> None:
        work = self._group.broadcast(tensor, 0, timeout=self._timeout)
        if self.address.backend == "gloo":
            work.wait(self._timeout)
            return
        deadline = time.monotonic() + self.address.timeout_seconds
        while not work.is_completed():
            if time.monotonic() > deadline:
                self._group.abort()
                raise GroupError(f"no progress for {self.address.timeout_seconds} s")
            time.sleep(0.0002)
        work.wait()


def _make(address: GroupAddress, store: Any, timeout: timedelta) -> Any:
    if address.backend == "gloo":
        return ProcessGroupGloo(store, address.rank, address.world_size, timeout)
    from torch.distributed import ProcessGroupNCCL  # absent from CPU builds of torch

    options = ProcessGroupNCCL.Options()
    options._timeout = _NCCL_OWN_TIMEOUT
    if address.num_lanes > 1:  # each channel has buffers of its own at both ends, and a receiver is in every lane
        options.config.max_ctas = max(1, MOST_CHANNELS // address.num_lanes)
    return ProcessGroupNCCL(store, address.rank, address.world_size, options)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
