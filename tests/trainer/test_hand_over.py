"""Which groups change hands, against arithmetic by hand and as properties over random fleets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.recipe.staleness import Group
from rollcast.rollouts.records import Claim, Purpose
from rollcast.trainer.control.hand_over import (
    MIN_SPEED_RATIO,
    GroupOutlook,
    HandOvers,
    groups_to_move,
)
from rollcast.wire.version import PolicyVersion

LAG, STEP = 8, 10
OUTLOOK = GroupOutlook(step_seconds=10.0, longest_tokens=1000, token_budget=3000, queue_seconds=0.0)


def moves(
    rates: dict[str, float],
    *,
    first_step: int | None = STEP,
    claimed_at: float = 0.0,
    now: float = 0.0,
    outlook: GroupOutlook = OUTLOOK,
    waited_for: Sequence[int] = (),
    ready: bool = False,
    step: int = STEP,
) -> dict[str, list[int]]:
    """Of one group of the generator "owner"."""
    claim = Claim("owner", PolicyVersion(1, STEP), 0, "1-0", claimed_at, Purpose.TRAIN)
    return groups_to_move(
        [Group(5, first_step, ready), Group(6, None, False)],
        {5: claim},
        rates,
        outlook,
        step=step,
        floor=step - 1,
        max_staleness=LAG,
        waited_for=waited_for,
        now_seconds=now,
    )


MOVED = {"owner": [5]}
NEEDS_40_SECONDS = {"owner": 1.0, "peer": 1000 / 38}
"""A peer needs 2 s for the move and 38 s for the longest rollout: at 80 s, eight steps, it is
time."""


@pytest.mark.parametrize(
    ("rates", "changes", "expected"),
    [
        (NEEDS_40_SECONDS, {}, MOVED),
        (NEEDS_40_SECONDS, {"ready": True}, {}),
        (
            {"owner": 1.0, "peer": 100.0},
            {},
            {},
        ),  # 2 + 10 s elsewhere: there is time, the owner's tokens count till then
        ({"owner": 1.0, "peer": 100.0}, {"step": STEP + 5}, {}),  # 30 s left, 2 x 12 needed
        ({"owner": 1.0, "peer": 100.0}, {"step": STEP + 6}, MOVED),  # 20 s left
        ({"owner": 1.0, "peer": 100.0}, {"waited_for": [5]}, MOVED),
        ({"owner": 14.0, "peer": 28.0}, {}, {}),  # 72 s at the owner: in time
        ({"owner": 12.0, "peer": 24.0}, {}, MOVED),  # 84 s
        ({"owner": 12.0, "peer": 23.9}, {}, {}),  # not twice as fast
        ({"owner": 12.0, "peer": 24.0}, {"claimed_at": -60.0}, {}),  # 280 tokens left: 24 s
        (
            {"owner": 12.0, "peer": 24.0},
            {"claimed_at": -84.0},
            MOVED,
        ),  # the longest is outlasted: up to the budget
        ({"owner": 0.0, "peer": 24.0}, {}, {}),
        ({"peer": 24.0}, {}, {}),  # the owner drains, or is no member
        ({"owner": 1.0}, {}, {}),
        ({}, {}, {}),
    ],
)
def test_a_group_moves_if_it_would_be_late_here_and_sooner_there(
    rates: Any, changes: Any, expected: Any
) -> None:
    assert moves(rates, **changes) == expected


def test_a_long_queue_makes_moving_pointless() -> None:
    rates = {"owner": 12.0, "peer": 24.0}
    assert moves(rates) == MOVED
    assert moves(rates, outlook=GroupOutlook(10.0, 1000, 3000, queue_seconds=60.0)) == {}, (
        "2 + 60 + 42 s against 84 s"
    )


def test_an_unseen_start_counts_as_the_oldest_possible() -> None:
    rates = {"owner": 1.0, "peer": 1000 / 33}  # 2 x (2 + 33) = 70 s: seven steps
    assert moves(rates, first_step=STEP) == {}
    assert moves(rates, first_step=None) == MOVED


@settings(max_examples=100)
@given(
    owner=st.floats(0.1, 200.0),
    peers=st.lists(st.floats(0.0, 200.0), max_size=3),
    elapsed=st.floats(0.0, 2000.0),
    steps_left=st.integers(0, LAG),
    queue_seconds=st.floats(0.0, 300.0),
)
def test_whatever_moves_would_be_late_and_has_a_faster_peer(
    owner: float, peers: list[float], elapsed: float, steps_left: int, queue_seconds: float
) -> None:
    outlook = GroupOutlook(
        OUTLOOK.step_seconds, OUTLOOK.longest_tokens, OUTLOOK.token_budget, queue_seconds
    )
    rates = {"owner": owner} | {f"peer{index}": rate for index, rate in enumerate(peers)}
    step = STEP + LAG - steps_left
    moved = moves(rates, now=elapsed, outlook=outlook, step=step)
    if moved:
        fastest = max(peers)
        assert fastest >= MIN_SPEED_RATIO * owner
        assert elapsed + outlook.token_budget / owner > steps_left * outlook.step_seconds
        slower_queue = GroupOutlook(
            outlook.step_seconds, outlook.longest_tokens, outlook.token_budget, 1e9
        )
        assert not moves(rates, now=elapsed, outlook=slower_queue, step=step)
        assert not moves(
            {"owner": owner, "peer": 1.9 * owner}, now=elapsed, outlook=outlook, step=step
        )


def test_each_owner_is_asked_once_for_each_task() -> None:
    asked: list[tuple[str, list[int]]] = []

    def ask(generator: str, sequences: Sequence[int]) -> bool:
        asked.append((generator, list(sequences)))
        return generator != "gone"

    hand_overs = HandOvers()
    assert hand_overs.request({"a": [1, 2], "gone": [3]}, {1, 2, 3}, ask) == {"a": [1, 2]}
    assert hand_overs.request({"a": [2, 4], "b": [1], "gone": [3]}, {1, 2, 3, 4}, ask) == {
        "a": [4],
        "b": [1],
    }
    assert asked[-1] == ("gone", [3]), "nobody was asked the first time"
    hand_overs.request({}, {4}, ask)
    assert hand_overs.request({"a": [1, 4]}, {1, 4}, ask) == {"a": [1]}, (
        "settled tasks are forgotten"
    )
