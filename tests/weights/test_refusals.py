"""Mistakes of configuration end with a sentence, not with a retry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rollcast.config.errors import UserError
from tests.weights.conftest import Process, Trainer


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_generator_without_the_token_is_refused(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process], token: str | None
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


def test_a_taken_port_is_named(start_trainer: Callable[..., Trainer]) -> None:
    taken = start_trainer().rpc["port"]
    with pytest.raises(UserError, match=str(taken)):
        start_trainer(rpc={"port": taken})
