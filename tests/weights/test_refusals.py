"""Mistakes of configuration end with a sentence, not with a retry."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from rollcast.config.errors import UserError
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION
from rollcast.wire.weights_pb2_grpc import WeightSyncStub
from testkit.weights.trainer_end import Process, Trainer


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_generator_without_the_token_is_refused(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    token: str | None,
) -> None:
    trainer = start_trainer(rpc={"token": "right"})
    generator = start_generator("intruder", {**trainer.rpc, "token": token})
    assert "token" in generator.wait("refused")["reason"]
    assert trainer.publisher.members() == []


def test_the_right_token_opens_the_door(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(rpc={"token": "right"})
    start_generator("friend", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("friend")


def test_a_head_of_other_precision_is_refused(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    generator = start_generator("low", trainer.rpc, lm_head="model")
    reason = generator.wait("refused")["reason"]
    assert "lm_head = 'model'" in reason
    assert "'fp32'" in reason
    assert trainer.publisher.members() == []


@pytest.mark.parametrize("theirs", [0, WIRE_VERSION - 1, WIRE_VERSION + 1])
def test_a_generator_of_another_wire_version_is_refused(
    start_trainer: Callable[..., Trainer], theirs: int
) -> None:
    """As a process of another release announces itself, over the real stream."""
    trainer = start_trainer()
    announce = weights_pb2.Announce(
        generator="other", num_workers=1, lm_head="fp32", slots=4, wire=theirs
    )
    with grpc.insecure_channel(f"127.0.0.1:{trainer.rpc['port']}") as channel:
        stream = WeightSyncStub(channel).Sync(
            iter([weights_pb2.FromGenerator(announce=announce)]), timeout=20
        )
        with pytest.raises(grpc.RpcError) as refused:
            next(stream)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    sentence = str(refused.value.details())
    assert (
        f"the generator speaks wire version {theirs} and the trainer {WIRE_VERSION}; " in sentence
    )
    assert "\n" not in sentence
    assert trainer.publisher.members() == []


def test_a_taken_port_is_named(start_trainer: Callable[..., Trainer]) -> None:
    taken = start_trainer().rpc["port"]
    with pytest.raises(UserError, match=str(taken)):
        start_trainer(rpc={"port": taken})
