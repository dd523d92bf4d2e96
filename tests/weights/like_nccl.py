"""A process group for CPU tensors within one process that fails as NCCL's does.

Imitated, from torch's ProcessGroupNCCL and from runs on a GPU:

    construction    connects nothing. Without TORCH_NCCL_BLOCKING_WAIT it starts a watchdog that
                    ends the process when a member is lost (here: `Network.ended_by_watchdog`)
    first use       blocks until all members are there. A blocking communicator does so for good,
                    whatever is called from other threads; a non-blocking one gives up after
                    TORCH_NCCL_NONBLOCKING_TIMEOUT seconds
    a lost member   is found by polling: `is_completed` turns true, `wait` raises
    a frozen one    is not found: the collective never completes
    abort           takes ABORT_SECONDS of its caller

`install` puts it where torch keeps its own; CPU builds of torch lack it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

ABORT_SECONDS = 0.5
WATCHDOG_SECONDS = 0.02


@dataclass
class Room:
    """The members that met under one unique id."""

    size: int
    present_ranks: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    launched: dict[int, dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))
    done: set[int] = field(default_factory=set)


class Network:
    """All rooms, and what happened in them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.rooms: dict[str, Room] = {}
        self.ended_by_watchdog: list[int] = []
        """Ranks whose process NCCL's watchdog would have ended."""
        self.aborted_on: list[str] = []
        """Names of the threads that were held by an abort."""
        self.opening: dict[int, int] = defaultdict(int)
        self.most_opening: dict[int, int] = defaultdict(int)
        """The most groups that each rank opened at the same time."""
        self.most_in_flight = 0
        self.freed = threading.Event()
        """Ends what would block for good, at the end of a test."""

    def lose(self, rank: int) -> None:
        """The process of this rank dies."""
        with self.changed:
            for room in self.rooms.values():
                room.lost.add(rank)
            self.changed.notify_all()

    def all_travel(self) -> bool:
        """Whether every group has a collective that has begun and is not over."""
        with self.changed:
            return all(len(room.launched) > len(room.done) for room in self.rooms.values())

    def free(self) -> None:
        with self.changed:
            self.freed.set()
            self.changed.notify_all()


class Work:
    def __init__(self, group: LikeNccl, number: int) -> None:
        self._group = group
        self._number = number

    def is_completed(self) -> bool:
        room = self._group.room
        with self._group.network.changed:
            return self._number in room.done or bool(room.lost)

    def wait(self, timeout: timedelta | None = None) -> None:
        room = self._group.room
        with self._group.network.changed:
            is_done = self._number in room.done
        if not is_done:
            raise dist.DistBackendError(
                "NCCL error: remote process exited or there was a network error"
            )


class GroupOptions:
    def __init__(self) -> None:
        self.config = SimpleNamespace(blocking=1, max_ctas=0)
        self._timeout = timedelta(minutes=10)


class LikeNccl:
    Options = GroupOptions
    network: Network

    def __init__(self, store: Any, rank: int, size: int, options: GroupOptions) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._options = options
        self._next = 0
        self._room: Room | None = None
        if os.environ.get("TORCH_NCCL_BLOCKING_WAIT") != "1":
            threading.Thread(target=self._watch, daemon=True).start()

    @property
    def room(self) -> Room:
        assert self._room is not None
        return self._room

    def broadcast(self, tensor: torch.Tensor, root: int, timeout: timedelta | None = None) -> Work:
        if self._room is None:
            self._open()
        room = self.room
        with self.network.changed:
            if room.lost:
                raise dist.DistBackendError("NCCL communicator was aborted")
            number = self._next
            self._next += 1
            room.launched[number][self._rank] = tensor
            travelling = [
                n
                for n, tensors in room.launched.items()
                if self._rank in tensors and n not in room.done
            ]
            self.network.most_in_flight = max(self.network.most_in_flight, len(travelling))
            tensors = room.launched[number]
            if len(tensors) == self._size:
                for other_rank, target in tensors.items():
                    if other_rank != root:
                        target.copy_(tensors[root])
                room.done.add(number)
            self.network.changed.notify_all()
        return Work(self, number)

    def abort(self) -> None:
        self.network.aborted_on.append(threading.current_thread().name)
        time.sleep(ABORT_SECONDS)
        if self._room is not None:
            with self.network.changed:
                self._room.lost.add(self._rank)
                self.network.changed.notify_all()

    def _open(self) -> None:
        network = self.network
        with network.changed:
            network.opening[self._rank] += 1
            network.most_opening[self._rank] = max(
                network.most_opening[self._rank], network.opening[self._rank]
            )
        try:
            if self._rank == 0:
                self._store.set("unique id", os.urandom(8).hex())
            unique_id = self._store.get("unique id").decode()
            # How long a member needs for its own part of the opening
            time.sleep(0.05)
            self._enter(unique_id)
        finally:
            with network.changed:
                network.opening[self._rank] -= 1

    def _enter(self, unique_id: str) -> None:
        network = self.network
        is_blocking = self._options.config.blocking != 0
        patience = None if is_blocking else float(os.environ["TORCH_NCCL_NONBLOCKING_TIMEOUT"])
        with network.changed:
            room = network.rooms.setdefault(unique_id, Room(self._size))
            room.present_ranks.add(self._rank)
            network.changed.notify_all()
            network.changed.wait_for(
                lambda: (
                    len(room.present_ranks) == self._size
                    or bool(room.lost and not is_blocking)
                    or network.freed.is_set()
                ),
                patience,
            )
            if len(room.present_ranks) < self._size:
                raise dist.DistBackendError("NCCL timeout in: ncclCommInitRankConfig")
            self._room = room

    def _watch(self) -> None:
        while not self.network.freed.wait(WATCHDOG_SECONDS):
            with self.network.changed:
                if self._room is not None and self._room.lost - {self._rank}:
                    self.network.ended_by_watchdog.append(self._rank)
                    return


def install(monkeypatch: pytest.MonkeyPatch) -> Network:
    """Let groups of the backend "nccl" be of this kind, for tensors of the CPU."""
    network = Network()
    kind = type("ProcessGroupNCCL", (LikeNccl,), {"network": network})
    monkeypatch.setattr(dist, "ProcessGroupNCCL", kind, raising=False)
    monkeypatch.setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", "2")
    return network
