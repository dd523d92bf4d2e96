"""When a group counts as lost, and how many groups are enough, against arithmetic by hand."""

from __future__ import annotations

import pytest

from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import Claim, Purpose
from rollcast.trainer.hand_over import Outlook
from rollcast.trainer.pacing import Pacing
from rollcast.wire.version import PolicyVersion
from tests.rollouts.examples import make_group, make_task


def make_pacing(token_budget: int) -> Pacing:
    return Pacing(lag=8, groups_per_step=4, token_budget=token_budget, drop_after_budgets=3.0)


def claim(at: float) -> Claim:
    return Claim("g", PolicyVersion(1, 0), 0, "1-0", at, Purpose.TRAIN)


def test_overdue_is_three_budgets_at_the_slowest_present_rate() -> None:
    pacing = make_pacing(1_000)
    assert pacing.overdue({1: claim(0.0)}, now=1e9, redis_back_at=0.0) == [], "nothing is known yet"
    pacing.observe_rates([10.0, 40.0, 0.0])
    assert pacing.overdue({1: claim(0.0), 2: claim(10.0)}, now=305.0, redis_back_at=0.0) == [1]
    pacing.observe_rates([40.0])
    assert pacing.overdue({1: claim(0.0)}, now=80.0, redis_back_at=0.0) == [1], "a generator that left does not count"


def test_a_small_budget_has_a_minute() -> None:
    pacing = make_pacing(10)
    pacing.observe_rates([100.0])
    assert pacing.overdue({1: claim(0.0)}, now=59.0, redis_back_at=0.0) == []
    assert pacing.overdue({1: claim(0.0)}, now=61.0, redis_back_at=0.0) == [1]


def test_nothing_is_narrowed_before_the_first_step() -> None:
    pacing = make_pacing(10)
    assert pacing.enough() is None
    assert pacing.longest_ratio() == pytest.approx(0.0)


def test_the_time_without_redis_makes_nothing_overdue() -> None:
    pacing = make_pacing(10)
    pacing.observe_rates([100.0])
    assert pacing.overdue({1: claim(0.0)}, now=159.0, redis_back_at=100.0) == []
    assert pacing.overdue({1: claim(0.0)}, now=161.0, redis_back_at=100.0) == [1]


def test_the_outlook_is_the_median_step_and_the_longest_recent_rollout() -> None:
    pacing = make_pacing(100)
    assert pacing.outlook(waiting=2) is None
    claimed = Claimed(make_task(1), "1-0", PolicyVersion(1, 0))
    for seconds, length in ((2.0, 30), (9.0, 70), (3.0, 10)):
        pacing.step_made(seconds, [make_group(claimed, "g", length=length)])
    assert pacing.outlook(waiting=2) == Outlook(
        step_seconds=3.0, longest_tokens=70, token_budget=100, queue_seconds=1.5
    )
