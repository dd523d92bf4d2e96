"""How much of the time before its announcement a generator may claim."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from queue import SimpleQueue

import grpc
import pytest

from rollcast.config.connections import Rpc
from rollcast.weights.receiver.presence import report_starting
from rollcast.weights.sender.roster import Roster, Seat
from rollcast.weights.sender.sightings import (
    EARLY_SECONDS,
    LAPSE_SECONDS,
    MAX_PROCESSES,
    UNSEEN_SECONDS,
    Sightings,
)
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION
from rollcast.wire.weights_pb2_grpc import WeightSyncStub
from testkit.weights.trainer_end import Trainer

OPENED_AT = 1_000.0
LATER = OPENED_AT + 10 * EARLY_SECONDS


@pytest.fixture
def sightings() -> Sightings:
    made = Sightings()
    made.open(OPENED_AT)
    return made


def seen(sightings: Sightings, key: bytes, begin: float, end: float) -> None:
    """Heard of every ten seconds."""
    now = begin
    while now < end:
        sightings.note(key, now)
        now += 10.0


def test_what_was_seen_is_believed_once(sightings: Sightings) -> None:
    seen(sightings, b"own", LATER, LATER + 200)
    assert sightings.claim(b"own", LATER + 200) == LATER - UNSEEN_SECONDS
    assert sightings.claim(b"own", LATER + 201) == LATER + 200
    sightings.count(b"own", LATER + 205)  # its place was taken away
    assert sightings.claim(b"own", LATER + 210) == LATER + 205


def test_what_was_not_seen_is_believed_for_as_long_as_modules_load(sightings: Sightings) -> None:
    for key in (b"", b"own", b"k" * 65):
        assert sightings.claim(key, LATER) == LATER - UNSEEN_SECONDS


def test_who_is_silent_for_long_is_seen_anew(sightings: Sightings) -> None:
    sightings.note(b"own", LATER)
    back = LATER + LAPSE_SECONDS + 1
    seen(sightings, b"own", back, back + 50)
    assert sightings.claim(b"own", back + 50) == back


def test_who_was_there_before_the_trainer_is_taken_at_its_word_once(sightings: Sightings) -> None:
    seen(sightings, b"own", OPENED_AT + EARLY_SECONDS - 1, LATER)
    assert sightings.claim(b"own", LATER) == -math.inf
    assert sightings.claim(b"own", LATER + 1) == LATER


def test_keys_that_are_made_up_take_no_memory(sightings: Sightings) -> None:
    for number in range(3 * MAX_PROCESSES):
        sightings.note(number.to_bytes(8, "big"), LATER)
    assert len(sightings._seen_intervals) == MAX_PROCESSES


@pytest.mark.parametrize("key", [b"", b"own"])
def test_an_announcement_claims_no_more_than_was_seen(key: bytes) -> None:
    roster = Roster(incarnation=2, lm_head="fp32")
    roster.sightings.open(OPENED_AT)
    announce = weights_pb2.Announce(
        generator="g",
        num_workers=1,
        lm_head="fp32",
        slots=4,
        wire=WIRE_VERSION,
        uncounted_seconds=1e300,
        key=key,
    )
    seat = roster.admit(announce, SimpleQueue(), LATER)
    assert isinstance(seat, Seat)
    assert seat.allocated_since == LATER - UNSEEN_SECONDS


def test_reports_of_a_starting_process_reach_the_trainer(
    start_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the real port: of two generators that claim an hour each, one has reported for some
    seconds.
    """
    monkeypatch.setattr("rollcast.weights.sender.sightings.EARLY_SECONDS", -1.0)
    monkeypatch.setattr("rollcast.weights.sender.sightings.UNSEEN_SECONDS", 0.0)
    monkeypatch.setattr("rollcast.weights.receiver.presence.REPORT_SECONDS", 0.2)
    trainer = start_trainer()
    rpc = Rpc(**trainer.rpc)
    began = time.monotonic()

    async def report() -> None:
        reporting = asyncio.create_task(report_starting(rpc, b"honest"))
        await asyncio.sleep(3.0)
        reporting.cancel()

    asyncio.run(report())
    reported = time.monotonic()
    with grpc.insecure_channel(f"127.0.0.1:{rpc.port}") as channel:
        for name in ("honest", "liar"):
            announce = weights_pb2.Announce(
                generator=name,
                num_workers=1,
                lm_head="fp32",
                slots=4,
                wire=WIRE_VERSION,
                uncounted_seconds=3600.0,
                key=name.encode(),
            )
            stream = WeightSyncStub(channel).Sync(
                iter([weights_pb2.FromGenerator(announce=announce)]), timeout=60
            )
            assert next(stream).WhichOneof("kind") == "welcome"
        since = {member.name: member.allocated_since for member in trainer.publisher.members()}
    assert began <= since["honest"] < began + 3.0
    assert since["liar"] >= reported


def test_an_announcement_under_another_name_takes_no_place_while_its_holder_lives(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., object]
) -> None:
    trainer = start_trainer()
    start_generator("holder", trainer.rpc)
    trainer.publish(0)
    trainer.wait_members("holder")
    announce = weights_pb2.Announce(
        generator="holder", num_workers=1, lm_head="fp32", slots=4, wire=WIRE_VERSION
    )
    with grpc.insecure_channel(f"127.0.0.1:{trainer.rpc['port']}") as channel:
        stream = WeightSyncStub(channel).Sync(
            iter([weights_pb2.FromGenerator(announce=announce)]), timeout=60
        )
        assert next(stream).WhichOneof("kind") == "leave"
    trainer.publish(1)
    trainer.wait_members("holder")
    assert trainer.removed == []
