"""What a session's tasks are made of, and what it says of itself while the trainer commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any, get_args

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from rollcast.config.connections import Rpc, Weights
from rollcast.config.errors import UserError
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.receiver import member
from rollcast.weights.receiver.member import WeightMember, run_until_first
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.reception import within
from rollcast.weights.receiver.weight_engine import FAILED, JOINED, ReceiverVerb, ReceiveState
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion, Surviving
from rollcast.wire.weights_pb2_grpc import WeightSyncServicer, add_WeightSyncServicer_to_server

MANY = 1000
WORKS = "works"
FAILS = "fails"
TOO_LARGE = "too large"


async def turns_of_the_loop(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns_of_a_poll", [1, 2, 3])
def test_a_session_ends_at_whatever_moment_of_a_poll_its_end_comes(turns_of_a_poll: int) -> None:
    polls = 0

    async def poll() -> None:
        nonlocal polls
        while polls < MANY:
            polls += 1
            await within(5.0, turns_of_the_loop(turns_of_a_poll))

    for turns in range(1, 40):
        asyncio.run(run_until_first(poll(), turns_of_the_loop(turns)))
        assert polls < MANY, f"polled on after an end in turn {turns}"


def test_a_call_that_takes_too_long_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, asyncio.sleep(5.0)))


def test_every_verb_is_a_method_of_the_receiver() -> None:
    assert all(callable(getattr(Receiver, verb)) for verb in get_args(ReceiverVerb))


class NoEngine:
    """Implements WeightEngine without weights: it can enter the groups whose `store_prefix` says
    so.
    """

    def __init__(self) -> None:
        self.state = ReceiveState()

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        match verb:
            case "join":
                join = weights_pb2.Join.FromString(*message)
                self.state = ReceiveState(
                    JOINED if join.store_prefix == WORKS else FAILED, join.epoch
                )
            case "receive":
                publish = weights_pb2.Publish.FromString(*message)
                no_room = publish.manifest.lm_head == TOO_LARGE
                self.state = ReceiveState(
                    FAILED, publish.epoch, reason="it does not fit", no_room=no_room
                )
            case "abandon":
                self.state = ReceiveState()
        return self.state

    async def apply(self, version: PolicyVersion) -> float:
        raise NotImplementedError

    async def heartbeat(self) -> weights_pb2.Heartbeat:
        return weights_pb2.Heartbeat()

    async def incarnation_changed(self, incarnation: int, history: Sequence[Surviving]) -> None:
        pass

    async def hand_over(self, sequences: Sequence[int]) -> None:
        raise NotImplementedError

    async def change_owner(self, reason: str) -> str:
        raise NotImplementedError


class CommandingTrainer(WeightSyncServicer):
    """Sends these commands, each after the answer to the one before; notes what the member then
    says of itself.
    """

    def __init__(
        self, commands: Sequence[weights_pb2.FromTrainer], wire: int = WIRE_VERSION
    ) -> None:
        self.wire = wire
        self.member: WeightMember
        self.answers: list[tuple[str, bool]] = []
        self.done = asyncio.Event()
        self._commands = commands

    async def Sync(  # noqa: N802  # gRPC's name
        self, requests: AsyncIterator[weights_pb2.FromGenerator], context: Any
    ) -> AsyncIterator[weights_pb2.FromTrainer]:
        await anext(requests)
        yield weights_pb2.FromTrainer(welcome=weights_pb2.Welcome(incarnation=1, wire=self.wire))
        for command in self._commands:
            yield command
            while (kind := (await anext(requests)).WhichOneof("kind")) == "heartbeat":
                pass
            self.answers.append((str(kind), self.member.joined))
        self.done.set()


def join_of(epoch: int, outcome: str) -> weights_pb2.FromTrainer:
    return weights_pb2.FromTrainer(
        join=weights_pb2.Join(epoch=epoch, store_prefix=outcome, timeout_seconds=5.0)
    )


async def commanded(trainer: CommandingTrainer) -> list[tuple[str, bool]]:
    """What a member answers to the trainer's commands, over gRPC."""
    server = grpc.aio.server()
    add_WeightSyncServicer_to_server(trainer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    trainer.member = make_member(port)
    try:
        await within(20.0, run_until_first(trainer.member.run(), trainer.done.wait()))
    finally:
        await server.stop(None)
    return trainer.answers


def make_member(port: int) -> WeightMember:
    return WeightMember(
        engine=NoEngine(),
        name="g",
        num_workers=1,
        slots=8,
        lm_head="fp32",
        rpc=Rpc(host="127.0.0.1", port=port),
        weights=Weights(),
        exporter=Exporter("test"),
    )


def test_a_trainer_that_has_ended_is_logged_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Generators stay after the end of a run without an autoscaler, possibly for days."""
    monkeypatch.setattr(member, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(member, "MIN_LOG_SECONDS", 0.1, raising=False)
    with socket.socket() as closed, capture_logs() as logs:
        closed.bind(("127.0.0.1", 0))
        asyncio.run(run_until_first(make_member(closed.getsockname()[1]).run(), asyncio.sleep(3.0)))
    away = [line for line in logs if "not connected" in line["event"]]
    assert 2 <= len(away) <= 7
    assert all(
        later["away_seconds"] >= 2 * earlier["away_seconds"] for earlier, later in pairwise(away)
    )


@pytest.mark.parametrize("wire", [0, WIRE_VERSION - 1, WIRE_VERSION + 1])
def test_a_trainer_of_another_wire_version_is_left_alone(wire: int) -> None:
    """An old trainer admits whoever comes: then the generator refuses,
    before it claims anything.
    """
    trainer = CommandingTrainer([join_of(1, WORKS)], wire)
    with pytest.raises(UserError) as refused:
        asyncio.run(commanded(trainer))
    assert f"the generator speaks wire version {WIRE_VERSION} and the trainer {wire}; " in str(
        refused.value
    )
    assert "images (or installations) of one release" in str(refused.value)
    assert trainer.answers == []


def test_whoever_fails_to_join_or_to_receive_is_in_no_group_until_the_next_join() -> None:
    version = PolicyVersion(1, 0).to_proto()
    publish = weights_pb2.Publish(epoch=3, manifest=weights_pb2.Manifest(version=version))
    commands = [
        join_of(1, WORKS),
        join_of(2, FAILS),
        join_of(3, WORKS),
        weights_pb2.FromTrainer(publish=publish),
        join_of(4, WORKS),
    ]

    assert asyncio.run(commanded(CommandingTrainer(commands))) == [
        ("joined", True),
        ("failed", False),
        ("joined", True),
        ("failed", False),
        ("joined", True),
    ]


def test_whoever_has_no_room_for_a_version_ends_with_the_reason() -> None:
    """Fenced and back under a new name it would meet the same version again, for ever."""
    manifest = weights_pb2.Manifest(version=PolicyVersion(1, 0).to_proto(), lm_head=TOO_LARGE)
    publish = weights_pb2.FromTrainer(publish=weights_pb2.Publish(epoch=1, manifest=manifest))
    with pytest.raises(OutOfMemory, match="it does not fit"):
        asyncio.run(commanded(CommandingTrainer([join_of(1, WORKS), publish])))
