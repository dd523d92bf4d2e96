"""When a generator is fenced, and who may take a place."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from rollcast.weights.sender.roster import (
    MAX_FAILURES,
    NAME_TAKEN,
    Roster,
    Seat,
    SeatAnswer,
    SeatRefusal,
)
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion, Surviving

PATIENCE, SUSPICION = 8.0, 3.0


def announce(name: str = "g", **fields: Any) -> weights_pb2.Announce:
    return weights_pb2.Announce(
        **{
            "generator": name,
            "num_workers": 1,
            "lm_head": "fp32",
            "slots": 4,
            "wire": WIRE_VERSION,
            **fields,
        }
    )


def take_place(roster: Roster, now: float = 100.0, **fields: Any) -> Seat:
    seat = roster.admit(announce(**fields), SimpleQueue(), now)
    assert isinstance(seat, Seat)
    return seat


@pytest.fixture
def roster() -> Roster:
    return Roster(incarnation=2, lm_head="fp32")


@pytest.mark.parametrize(
    ("connected", "suspected", "silent", "fault"),
    [
        (True, False, 7.9, None),
        (True, False, 8.1, "silent"),
        (True, True, 2.9, None),
        (True, True, 3.1, "silent"),
        (False, False, 2.9, None),
        (False, False, 3.1, "disconnected"),
        (False, True, 0.0, "disconnected"),
    ],
)
def test_silence_convicts_sooner_when_something_broke(
    roster: Roster, connected: bool, suspected: bool, silent: float, fault: str | None
) -> None:
    seat = take_place(roster)
    seat.connected = connected
    assert seat.fault(100.0 + silent, PATIENCE, SUSPICION, suspected) == fault


def test_an_engine_with_work_must_step(roster: Roster) -> None:
    seat = take_place(roster)
    for now in range(101, 111):
        seat.note_heartbeat(weights_pb2.Heartbeat(engine_steps=5, running_rollouts=2), now)
        seat.heard_at = now
    assert seat.fault(108.0, PATIENCE, SUSPICION, suspected=False) is None
    assert seat.fault(109.1, PATIENCE, SUSPICION, suspected=False) == "hung"
    seat.note_heartbeat(weights_pb2.Heartbeat(engine_steps=6, running_rollouts=2), 109.0)
    assert seat.fault(109.1, PATIENCE, SUSPICION, suspected=False) is None
    seat.note_heartbeat(weights_pb2.Heartbeat(engine_steps=6, running_rollouts=0), 130.0)
    seat.heard_at = 130.0
    assert seat.fault(130.0, PATIENCE, SUSPICION, suspected=False) is None


def test_who_breaks_every_group_is_the_cause(roster: Roster) -> None:
    seat = take_place(roster)
    for epoch in range(1, MAX_FAILURES + 1):
        assert seat.fault(100.0, PATIENCE, SUSPICION, suspected=False) is None
        seat.epoch = epoch
        seat.respond(epoch, SeatAnswer(good=True))
        seat.respond(epoch, SeatAnswer(good=False))
        roster.blame([seat])
    assert seat.fault(100.0, PATIENCE, SUSPICION, suspected=False) == "failed"
    seat.acknowledge(seat.epoch, PolicyVersion(2, 1))
    assert seat.fault(100.0, PATIENCE, SUSPICION, suspected=False) is None


def fail_together(roster: Roster, epoch: int, *seats: Seat) -> None:
    """All report their common group broken, as they do whoever is the cause."""
    for seat in seats:
        seat.epoch = epoch
        seat.respond(epoch, SeatAnswer(good=False))


def test_groups_that_broke_because_members_were_lost_count_against_no_survivor(
    roster: Roster,
) -> None:
    innocent = take_place(roster)
    innocent.joined = True
    for epoch in range(1, 2 * MAX_FAILURES):
        lost = take_place(roster, name=f"lost-{epoch}")
        fail_together(roster, epoch, innocent)
        roster.fence(lost, "silent")
        roster.blame([innocent, lost])
        assert innocent.fault(100.0, PATIENCE, SUSPICION, suspected=False) is None
    assert innocent.joined


def test_members_of_a_group_that_broke_for_no_visible_reason_show_one_by_one_who_is_the_cause(
    roster: Roster,
) -> None:
    innocent, cause = take_place(roster, name="innocent"), take_place(roster, name="cause")
    for epoch in range(1, 4 * MAX_FAILURES, 4):
        innocent.joined = cause.joined = True
        fail_together(roster, epoch, innocent, cause)
        roster.blame([innocent, cause])
        assert not innocent.joined, "it must succeed alone first"
        innocent.epoch = epoch + 1
        innocent.acknowledge(epoch + 1, PolicyVersion(2, 1))
        fail_together(roster, epoch + 2, cause)
        roster.blame([cause])
        if cause.fault(100.0, PATIENCE, SUSPICION, suspected=False) == "failed":
            break
    assert cause.failures >= MAX_FAILURES
    assert innocent.fault(100.0, PATIENCE, SUSPICION, suspected=False) is None


def test_answers_of_a_dead_epoch_are_ignored(roster: Roster) -> None:
    seat = take_place(roster)
    seat.epoch = 5
    seat.respond(4, SeatAnswer(good=False))
    assert seat.answer is None


def test_a_fenced_name_is_told_to_come_back_as_new(roster: Roster) -> None:
    seat = take_place(roster)
    roster.fence(seat, "silent")
    queue: SimpleQueue[Any] = SimpleQueue()
    assert roster.admit(announce(), queue, 200.0) is None
    assert queue.get().leave.reason == "silent"
    assert queue.get() is None
    assert isinstance(roster.admit(announce("g-2"), SimpleQueue(), 200.0), Seat)


def test_a_fenced_process_that_comes_back_holds_nobody_up_with_what_it_has(roster: Roster) -> None:
    """It has aborted its rollouts, and claims nothing before it has acknowledged a version."""
    held = PolicyVersion(2, 3).to_proto()
    seat = take_place(roster, version=held, key=b"own")
    assert roster.lowest_step() == 3
    roster.fence(seat, "failed")
    back = take_place(roster, name="g-2", version=held, key=b"own")
    assert roster.lowest_step() is None
    back.acknowledge(1, PolicyVersion(2, 4))
    assert roster.lowest_step() == 4
    take_place(roster, name="g-3", version=held, key=b"other")
    assert roster.lowest_step() == 3


def test_the_start_up_of_a_generator_counts_once(roster: Roster) -> None:
    take_place(roster, now=100.0, uncounted_seconds=40.0, key=b"own")
    back = take_place(
        roster, now=150.0, uncounted_seconds=20.0, key=b"own"
    )  # its stream broke; it was counted all the time
    assert back.member(None).allocated_since == 60.0
    roster.fence(back, "silent")
    assert (
        take_place(roster, name="g-2", now=170.0, uncounted_seconds=5.0)
        .member(None)
        .allocated_since
        == 165.0
    )


def test_a_stream_that_comes_back_takes_over_the_place(roster: Roster) -> None:
    old = take_place(roster, key=b"own")
    old.joined = True
    new = take_place(roster, version=PolicyVersion(2, 4).to_proto(), key=b"own")
    assert old not in roster
    assert new in roster
    assert (new.joined, new.version) == (False, PolicyVersion(2, 4))
    assert old.outgoing.get() is None  # its stream ends


@pytest.mark.parametrize("key", [b"", b"another", b"own\0"])
@pytest.mark.parametrize("connected", [True, False])
def test_a_name_whose_holder_has_a_place_is_given_to_its_own_process_only(
    roster: Roster, key: bytes, connected: bool
) -> None:
    holder = take_place(roster, key=b"own")
    holder.connected = connected
    queue: SimpleQueue[Any] = SimpleQueue()
    assert roster.admit(announce(key=key), queue, 101.0) is None
    assert queue.get().leave.reason == NAME_TAKEN
    assert queue.get() is None
    assert list(roster) == [holder]
    assert holder.outgoing.empty()


def test_a_holder_without_a_key_keeps_its_name_while_its_stream_is_there(roster: Roster) -> None:
    holder = take_place(roster)
    assert roster.admit(announce(), SimpleQueue(), 101.0) is None
    holder.connected = False
    assert take_place(roster) is not holder


@pytest.mark.parametrize(
    ("held", "lowest"),
    [
        (None, None),  # it has nothing to sample with
        (PolicyVersion(2, 8), 8),
        (PolicyVersion(1, 7), 7),  # survives: the engine goes on with it until it caught up
        (PolicyVersion(1, 8), None),  # lost by the restart: the engine withdraws it
        (PolicyVersion(3, 1), None),
    ],
)
def test_who_may_sample_counts_for_the_gate_before_it_has_joined(held: Any, lowest: Any) -> None:
    roster = Roster(incarnation=2, lm_head="fp32", history=[Surviving(1, 7)])
    assert roster.lowest_step() is None
    take_place(roster, **({} if held is None else {"version": held.to_proto()}))
    assert roster.joined_seats() == []
    assert roster.lowest_step() == lowest
    joined = take_place(roster, name="other", version=PolicyVersion(2, 9).to_proto())
    joined.joined = True
    assert roster.lowest_step() == (9 if lowest is None else lowest)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"lm_head": "model"}, "lm_head"),
        (
            {"router_replay": True},
            "recipe.router_replay = true at the generator, false at the trainer; give both",
        ),
        ({"num_workers": 0}, "num_workers"),
        ({"num_workers": 1 << 20}, "num_workers"),
        ({"uncounted_seconds": -1.0}, "uncounted_seconds"),
        ({"uncounted_seconds": float("nan")}, "uncounted_seconds"),
        ({"uncounted_seconds": float("inf")}, "uncounted_seconds"),
        ({"name": ""}, "name"),
        ({"name": "x" * 300}, "name"),
    ],
)
def test_a_contradictory_announcement_is_refused(
    roster: Roster, fields: Any, complaint: str
) -> None:
    refusal = roster.admit(announce(**fields), SimpleQueue(), 0.0)
    assert isinstance(refusal, SeatRefusal)
    assert complaint in refusal.reason


def test_a_trainer_that_replays_refuses_who_does_not_say_that_it_records() -> None:
    """As an older release announces itself: it knows no such field."""
    refusal = Roster(incarnation=2, lm_head="fp32", router_replay=True).admit(
        announce(), SimpleQueue(), 0.0
    )
    assert isinstance(refusal, SeatRefusal)
    assert "recipe.router_replay = false at the generator, true at the trainer" in refusal.reason


@pytest.mark.parametrize(("step", "ready"), [(6, False), (7, True), (8, True)])
def test_ready_is_joined_and_at_most_one_step_behind(
    roster: Roster, step: int, ready: bool
) -> None:
    seat = take_place(roster, version=PolicyVersion(2, step).to_proto())
    newest = PolicyVersion(2, 8)
    assert not seat.member(newest).ready
    seat.joined = True
    assert seat.member(newest).ready is ready
    seat.leaving = True
    assert not seat.member(newest).ready


def test_who_cannot_come_is_counted_although_rank_0_gave_up_first(roster: Roster) -> None:
    seat = take_place(roster)
    for epoch in range(1, MAX_FAILURES + 1):
        seat.epoch = epoch
        seat.answer = None
        roster.blame([seat])
    assert seat.fault(100.0, PATIENCE, SUSPICION, suspected=False) == "failed"
