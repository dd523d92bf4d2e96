"""A generator as a real process: the real WeightMember and Receiver around an engine that only
holds tensors.

Events leave through a pipe as dictionaries; the same pipe brings commands:
"leave" | "hang" | "joined" | "memory" | ("readiness", max_staleness).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any
from weakref import WeakKeyDictionary

import torch

from rollcast.config.connections import Rpc, Weights
from rollcast.config.errors import UserError
from rollcast.connections.object_files import ObjectFolder
from rollcast.runfolder.files import parse_location
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import configure_logging
from rollcast.weights.receiver.member import WeightMember
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.weight_engine import ReceiverVerb, ReceiveState, merge_states
from rollcast.weights.transport import turns
from rollcast.weights.transport.lane_transfer import TRAILER_BYTES
from rollcast.weights.transport.process_group import WeightGroup
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion, Surviving
from testkit.weights.memory_kinds import memory_by_kind

torch.set_num_threads(1)


pipe: Connection


def emit(event: str, **values: Any) -> None:
    pipe.send({"event": event, **values})


def digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes: independent of the code under test."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return sha.hexdigest()


def copy_into(weights: dict[str, torch.Tensor], views: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Copy the weights, as a model's load_weights does."""
    for name, tensor in views:
        if name in weights:
            weights[name].copy_(tensor)
        else:
            weights[name] = tensor.clone()


class TensorEngine:
    """Implements WeightEngine: `num_workers` receivers, as tensor-parallel workers would have."""

    def __init__(
        self,
        num_workers: int,
        running_rollouts: int,
        verify: bool,
        apply_seconds: float,
        again: str,
        device: str,
        store: ObjectFolder | None,
    ) -> None:
        self.receivers = [
            Receiver(device=torch.device(device), worker=worker, store=store)
            for worker in range(num_workers)
        ]
        self.weights: list[dict[str, torch.Tensor]] = [{} for _ in self.receivers]
        self.running_rollouts = running_rollouts
        self.verify = verify
        self.apply_seconds = apply_seconds
        self.again = again
        """Prefix of the generator's names after fences."""
        self.loading = asyncio.Lock()
        """While it is held the workers neither step nor answer."""
        self.steps = 0
        self.hung = False
        self.names = 0

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        for receiver in self.receivers:
            getattr(receiver, verb)(*message)
        if verb == "skip":
            emit("skipped")
        return merge_states([ReceiveState(*receiver.poll()) for receiver in self.receivers])

    async def apply(self, version: PolicyVersion) -> float:
        started = time.perf_counter()
        async with self.loading:
            await asyncio.sleep(self.apply_seconds)
            for receiver, worker_weights in zip(self.receivers, self.weights, strict=True):
                receiver.apply(partial(copy_into, worker_weights))
        pause = time.perf_counter() - started
        digests = (
            {digest(weights_by_name.items()) for weights_by_name in self.weights}
            if self.verify
            else {""}
        )
        assert len(digests) == 1
        emit("applied", version=str(version), digest=digests.pop(), steps=self.steps, pause=pause)
        return pause

    async def heartbeat(self) -> weights_pb2.Heartbeat:
        async with self.loading:
            return weights_pb2.Heartbeat(
                engine_steps=self.steps,
                running_rollouts=self.running_rollouts,
                decode_tokens_per_second=12.5,
            )

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        emit("incarnation", incarnation=incarnation, history=[list(entry) for entry in history])

    async def hand_over(self, sequences: Sequence[int]) -> None:
        emit("hand_over", sequences=list(sequences))

    async def change_owner(self, reason: str) -> str:
        self.names += 1
        self.hung = False
        emit("fenced", reason=reason)
        return f"{self.again}-{self.names}"

    async def step(self) -> None:
        while True:
            self.steps += not self.hung and not self.loading.locked()
            await asyncio.sleep(0.005)


def disturb(slow_seconds: float, corrupt: bool) -> None:
    """Faults of the network: every bucket arrives late, or the first complete reception has one
    wrong bit.
    """
    begin = WeightGroup.begin_broadcast
    wait_oldest = WeightGroup.wait_oldest
    remaining = [corrupt]
    travelling: WeakKeyDictionary[WeightGroup, deque[torch.Tensor]] = WeakKeyDictionary()
    pieces: WeakKeyDictionary[WeightGroup, int] = WeakKeyDictionary()

    def slow(self: WeightGroup, piece: torch.Tensor) -> None:
        time.sleep(slow_seconds)
        begin(self, piece)
        travelling.setdefault(self, deque()).append(piece)

    def finish_disturbed(self: WeightGroup) -> None:
        wait_oldest(self)
        piece = travelling[self].popleft()
        if piece.numel() == TRAILER_BYTES:
            pieces[self] = -1
            return
        pieces[self] = index = pieces.get(self, -1) + 1
        emit("bucket", index=index)
        # A piece in the middle of the version
        if index == 6 and remaining:
            piece[17] ^= 4 * remaining.pop()

    if slow_seconds or corrupt:
        WeightGroup.begin_broadcast = slow  # type: ignore[method-assign]
        WeightGroup.wait_oldest = finish_disturbed  # type: ignore[method-assign]


def slow_down_store(seconds: float) -> None:
    """Every range of an object arrives late."""
    read = ObjectFolder.read

    def slow_read(self: ObjectFolder, name: str, start: int, end: int) -> bytes:
        emit("range", name=name)
        time.sleep(seconds)
        return read(self, name, start, end)

    if seconds:
        ObjectFolder.read = slow_read  # type: ignore[method-assign]


def use_one_card(host: str) -> None:
    """Let NCCL connect processes of one GPU: it refuses two of one host, so each is a host of its
    own on loopback.
    """
    os.environ["NCCL_HOSTID"] = host
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"


async def main(settings: dict[str, Any]) -> None:
    os.environ.update(settings.get("environment", {}))
    weights = Weights(**settings["weights"])
    location = weights.store.location
    engine = TensorEngine(
        settings.get("num_workers", 1),
        settings.get("running_rollouts", 3),
        settings.get("verify", True),
        settings.get("apply_seconds", 0.0),
        settings.get("again", "again"),
        settings.get("device", "cpu"),
        ObjectFolder(parse_location(location)) if location else None,
    )
    # As if this many lanes may move concurrently, and the machine's clock was set after the start.
    turns.MAX_LANES_MOVING = settings.get("at_once", turns.MAX_LANES_MOVING)
    clock_set_seconds = settings.get("wall_clock_set_seconds", 0.0)
    wall_clock = time.time
    time.time = lambda: wall_clock() + clock_set_seconds
    disturb(settings.get("slow_seconds", 0.0), settings.get("corrupt", False))
    slow_down_store(settings.get("slow_read_seconds", 0.0))
    member = WeightMember(
        engine=engine,
        name=settings["name"],
        num_workers=settings.get("num_workers", 1),
        slots=8,
        lm_head=settings.get("lm_head", "fp32"),
        rpc=Rpc(**settings["rpc"]),
        weights=weights,
        exporter=Exporter("test"),
    )

    def obey() -> None:
        try:
            command = pipe.recv()
        except EOFError:  # the test's process was killed: nobody would end this one
            os._exit(1)
        engine.hung = command == "hang"
        if command == "leave":
            leaving.append(asyncio.create_task(leave()))
        elif command == "joined":
            emit("joined", joined=member.joined)
        elif command == "memory":
            emit("memory", memory=memory_by_kind())
        elif isinstance(command, tuple):
            ready, reason = member.readiness(command[1])
            emit("readiness", ready=ready, reason=reason)

    async def leave() -> None:
        emit("left", confirmed=await member.leave("test", 10.0))

    leaving: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().add_reader(pipe.fileno(), obey)
    stepping = asyncio.create_task(engine.step())
    emit("started")
    try:
        await member.run()
    except UserError as error:
        emit("refused", reason=str(error))
    await asyncio.gather(*leaving)
    stepping.cancel()
    emit("ended")


def run(connection: Connection, settings: dict[str, Any]) -> None:
    """The process."""
    global pipe
    pipe = connection
    if settings.get("device", "cpu") != "cpu":
        use_one_card(settings["name"])
    configure_logging("generator")
    asyncio.run(main(settings))
