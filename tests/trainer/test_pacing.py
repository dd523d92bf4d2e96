"""When a group counts as lost, and how many groups are enough, against arithmetic by hand."""

from __future__ import annotations

import pytest

from rollcast.rollouts.records import Claim, Purpose
from rollcast.trainer.pacing import Pacing
from rollcast.wire.version import PolicyVersion


def make_pacing(token_budget: int) -> Pacing:
    return Pacing(lag=8, groups_per_step=4, token_budget=token_budget, drop_after_budgets=3.0)


def claim(at: float) -> Claim:
    return Claim("g", PolicyVersion(1, 0), 0, "1-0", at, Purpose.TRAIN)


def test_overdue_is_three_budgets_at_the_slowest_present_rate() -> None:
    pacing = make_pacing(1_000)
    assert pacing.overdue({1: claim(0.0)}, now=1e9) == [], "nothing is known yet"
    pacing.observe_rates([10.0, 40.0, 0.0])
    assert pacing.overdue({1: claim(0.0), 2: claim(10.0)}, now=305.0) == [1]
    pacing.observe_rates([40.0])
    assert pacing.overdue({1: claim(0.0)}, now=80.0) == [1], "a generator that left does not count"


def test_a_small_budget_has_a_minute() -> None:
    pacing = make_pacing(10)
    pacing.observe_rates([100.0])
    assert pacing.overdue({1: claim(0.0)}, now=59.0) == []
    assert pacing.overdue({1: claim(0.0)}, now=61.0) == [1]


def test_nothing_is_narrowed_before_the_first_step() -> None:
    pacing = make_pacing(10)
    assert pacing.enough() is None
    assert pacing.longest_ratio() == pytest.approx(0.0)
