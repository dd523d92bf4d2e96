"""What is published arrives byte for byte, while members come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rollcast.weights.plan.manifest import PIECE_BYTES, TensorSpec
from rollcast.weights.sender.epoch import Epoch
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.lane_transfer import piece_bytes
from rollcast.weights.transport.process_group import PIECES_IN_FLIGHT
from rollcast.wire.version import PolicyVersion
from testkit.weights.trainer_end import SPECS, WEIGHTS, Process, Trainer, wait_until

MANY_KINDS = [
    TensorSpec("embed.weight", "bfloat16", (700, 96)),  # larger than a bucket
    TensorSpec("norm.weight", "float32", (96,)),
    TensorSpec("scalar", "float32", ()),
    TensorSpec("empty", "float32", (0, 5)),
    TensorSpec("experts", "float8_e4m3fn", (3, 7, 11)),
    TensorSpec("scale", "float16", (13, 1, 1)),
    TensorSpec("index", "int64", (5, 3)),
    TensorSpec("mask", "uint8", (9,)),
    TensorSpec("odd", "bfloat16", (1, 1, 33)),
    TensorSpec("double", "float64", (2, 2)),
]


def test_every_byte_of_every_dtype_arrives_at_every_worker(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(MANY_KINDS)
    first = start_generator("first", trainer.rpc, num_workers=2)
    second = start_generator("second", trainer.rpc)
    expected = trainer.publish(0)
    for generator in (first, second):
        assert generator.wait("applied")["digest"] == expected
    trainer.wait_members("first", "second")
    for step in (1, 2, 3):
        expected = trainer.publish(step)
        assert trainer.publisher.wait_acknowledged(step, 20.0)
        for generator in (first, second):
            assert generator.wait("applied", version=f"1.{step}")["digest"] == expected
    assert trainer.publisher.lowest_step() == 3
    member = trainer.publisher.members()[0]
    assert (member.version, member.ready, member.slots) == (PolicyVersion(1, 3), True, 8)
    wait_until(lambda: trainer.publisher.members()[0].decode_tokens_per_second == 12.5)
    assert trainer.metric('rollcast_generators{run="test",state="ready"}') == 2
    wait_until(lambda: trainer.metric('rollcast_weight_sync_seconds_count{run="test"}') == 3)
    assert trainer.removed == []


def test_nobody_joins_before_the_first_version_and_nobody_is_waited_for(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    assert trainer.publisher.lowest_step() is None
    assert trainer.publisher.wait_acknowledged(5, 0.0)
    generator = start_generator("early", trainer.rpc)
    wait_until(lambda: len(trainer.publisher.members()) == 1)
    assert not trainer.publisher.members()[0].joined
    expected = trainer.publish(0)
    assert generator.wait("applied")["digest"] == expected


def test_a_joiner_enters_while_versions_are_published(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    old = start_generator("old", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("old")
    new = start_generator("new", trainer.rpc)
    step = 0
    expected = {}
    while len([m for m in trainer.publisher.members() if m.joined]) < 2:
        step += 1
        expected[f"1.{step}"] = trainer.publish(step)
        assert trainer.publisher.wait_acknowledged(step, 20.0)
    expected["1.1000"] = trainer.publish(1000)
    assert trainer.publisher.wait_acknowledged(1000, 20.0)
    for generator in (old, new):
        assert generator.wait("applied", version="1.1000")["digest"] == expected["1.1000"]
        seen = [e for e in generator.events if e["event"] == "applied" and e["version"] in expected]
        assert all(event["digest"] == expected[event["version"]] for event in seen)
    assert trainer.removed == []
    assert trainer.metric('rollcast_weight_failures_total{reason="publish",run="test"}') == 0


def test_joiners_are_coalesced_into_one_epoch(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pieces on their way to them, of every group one, take no more memory of a rank than those
    of a lone lane.
    """
    open_groups, most = set[Epoch](), [0]
    make, drop = Epoch.__init__, Epoch.drop

    def made(self: Epoch, *arguments: Any, **keywords: Any) -> None:
        make(self, *arguments, **keywords)
        open_groups.add(self)
        most[0] = max(most[0], len(open_groups))

    def dropped(self: Epoch, slots: StagingSlots) -> None:
        drop(self, slots)
        open_groups.remove(self)

    monkeypatch.setattr(Epoch, "__init__", made)
    monkeypatch.setattr(Epoch, "drop", dropped)
    trainer = start_trainer(coalesce_seconds=3.0, lanes=2)
    trainer.publish(0)
    for index in range(3):
        start_generator(f"g{index}", trainer.rpc)
    trainer.wait_members("g0", "g1", "g2")
    trainer.publish(1)
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    assert (
        trainer.metric('rollcast_weight_epoch{run="test"}') == 4
    )  # three private groups, one of all
    assert most == [2] == [PIECE_BYTES // piece_bytes(2) // PIECES_IN_FLIGHT]


def test_a_leaver_takes_part_until_it_is_confirmed(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    stays, leaves = start_generator("stays", trainer.rpc), start_generator("leaves", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("stays", "leaves")
    leaves.tell("leave")
    assert leaves.wait("left")["confirmed"] is True
    wait_until(lambda: trainer.removed == [("leaves", "left")])
    expected = trainer.publish(1)
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    assert stays.wait("applied", version="1.1")["digest"] == expected
    assert trainer.metric('rollcast_generators_fenced_total{reason="left",run="test"}') == 0
    assert trainer.metric('rollcast_weight_failures_total{reason="publish",run="test"}') == 0


def test_a_slow_publish_coalesces_to_the_newest_version(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    generator = start_generator(
        "slow", trainer.rpc, slow_seconds=0.05
    )  # 12 buckets: 0.6 s for each version
    trainer.publish(0)
    generator.wait("applied", version="1.0")
    trainer.wait_members("slow")
    trainer.publish(1)
    generator.wait("bucket", index=1)
    for step in range(2, 9):
        expected = trainer.publish(step)  # version 1 is still on its way
    assert generator.wait("applied", version="1.8")["digest"] == expected
    applied = [event["version"] for event in generator.events if event["event"] == "applied"]
    assert applied == ["1.0", "1.1", "1.8"]


def test_the_engine_steps_on_while_a_version_arrives(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(SPECS)
    generator = start_generator("busy", trainer.rpc, slow_seconds=0.05)
    trainer.publish(0)
    before = generator.wait("applied")["steps"]
    trainer.wait_members("busy")
    trainer.publish(1)
    assert generator.wait("applied", version="1.1")["steps"] > before + 10


def test_one_generator_is_asked_to_hand_tasks_over_even_while_weights_arrive(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    slow, fast = (
        start_generator("slow", trainer.rpc, slow_seconds=0.05),
        start_generator("fast", trainer.rpc),
    )
    trainer.publish(0)
    trainer.wait_members("slow", "fast")
    trainer.publish(1)
    slow.wait("bucket", index=1)
    assert trainer.publisher.hand_over("slow", [3, 1 << 40])
    assert slow.wait("hand_over")["sequences"] == [3, 1 << 40]
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    slow.wait("applied", version="1.1")  # an acknowledgement may be here before the event is
    order = [event["event"] for event in slow.events if event["event"] in ("applied", "hand_over")]
    assert order == ["applied", "hand_over", "applied"], "it did not wait for version 1"
    assert not [event for event in fast.events if event["event"] == "hand_over"]
    assert not trainer.publisher.hand_over("unknown", [3])
    slow.tell("leave")
    wait_until(lambda: trainer.removed == [("slow", "left")])
    assert not trainer.publisher.hand_over("slow", [3]), "it is gone"


def test_who_lags_behind_what_was_announced_is_not_ready_until_it_caught_up(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    def readiness(max_staleness: int) -> tuple[bool, str]:
        generator.tell(("readiness", max_staleness))
        event = generator.wait("readiness")
        return event["ready"], event["reason"]

    trainer = start_trainer()
    generator = start_generator(
        "slow", trainer.rpc, slow_seconds=0.25
    )  # 12 buckets: 3 s for each version
    trainer.publish(1)
    generator.wait("applied", version="1.1")
    assert readiness(0) == (True, "holds version 1.1")
    trainer.publish(5)
    generator.wait("bucket", index=0)
    assert readiness(4) == (True, "holds version 1.1")
    assert readiness(3) == (False, "holds version 1.1, 4 steps behind the trainer; at most 3 do")
    generator.wait("applied", version="1.5")
    assert readiness(0) == (True, "holds version 1.5")


def test_while_an_update_keeps_broadcasts_away_nothing_is_sent_and_nobody_joins(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer()
    first = start_generator("first", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("first")
    with trainer.publisher.kept_away(0, 20.0):
        late = start_generator("late", trainer.rpc)
        wait_until(lambda: len(trainer.publisher.members()) == 2)
        expected = trainer.publish(1)
        assert not trainer.publisher.wait_acknowledged(1, 5 * WEIGHTS["coalesce_seconds"])
        assert not [event for event in late.events if event["event"] == "applied"]
    assert trainer.publisher.wait_acknowledged(1, 20.0)
    trainer.wait_members("first", "late")
    for generator in (first, late):
        assert generator.wait("applied", version="1.1")["digest"] == expected


def test_an_update_begins_when_a_joiner_has_what_it_is_being_sent(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    """Its catch-up shares the GPUs as a publication does, though everybody who is asked has
    acknowledged.
    """
    trainer = start_trainer()
    start_generator("first", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("first")
    late = start_generator("late", trainer.rpc, slow_seconds=0.1)
    late.wait("bucket", index=3)
    assert trainer.publisher.wait_acknowledged(0, 0.0)
    with trainer.publisher.kept_away(0, 20.0):
        assert {member.name for member in trainer.publisher.members() if member.joined} == {
            "first",
            "late",
        }
