"""The gate against exhaustive search on small cases."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.recipe import staleness
from rollcast.recipe.staleness import Group

groups_strategy = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 6)), st.booleans()), max_size=9
).map(
    lambda rows: [
        Group(sequence, first, ready and first is not None)
        for sequence, (first, ready) in enumerate(rows)
    ]
)


def can_all_be_used(
    groups: list[Group], *, floor: int, max_staleness: int, step: int, groups_per_step: int
) -> bool:
    """Play the best order: at each step from `step` on use the P groups with the earliest
    deadlines.
    """
    due = sorted(
        staleness.deadline(group, floor=floor, max_staleness=max_staleness) for group in groups
    )
    while due:
        used, due = due[:groups_per_step], due[groups_per_step:]
        if used[0] < step:
            return False
        step += 1
    return True


@given(
    groups=groups_strategy,
    max_staleness=st.integers(0, 4),
    late=st.integers(0, 1),
    groups_per_step=st.integers(1, 3),
)
@settings(max_examples=300)
def test_a_step_is_allowed_exactly_if_some_batch_leaves_a_future_for_every_group(
    groups: list[Group], max_staleness: int, late: int, groups_per_step: int
) -> None:
    step = 6
    at = {
        "floor": step - late,
        "max_staleness": max_staleness,
        "step": step,
        "groups_per_step": groups_per_step,
    }
    gone = {group.sequence for group in staleness.unusable(groups, **at)}
    groups = [group for group in groups if group.sequence not in gone]

    def leaves_a_future(batch: tuple[Group, ...]) -> bool:
        rest = [group for group in groups if group not in batch]
        return can_all_be_used(rest, **{**at, "step": step + 1})

    ready = [group for group in groups if group.ready]
    batch = staleness.oldest_ready(
        groups, floor=step - late, max_staleness=max_staleness, count=groups_per_step
    )
    if len(batch) < groups_per_step:
        assert len(ready) < groups_per_step
        return
    rest = [group for group in groups if group not in batch]
    late_groups = staleness.stragglers(rest, **at)
    assert leaves_a_future(batch) == (not late_groups)
    if late_groups:
        assert not any(leaves_a_future(other) for other in combinations(ready, groups_per_step))
        assert not any(group.ready for group in late_groups)
        # Once they are ready the step is allowed: waiting for them ends.
        everything_ready = [Group(group.sequence, group.first_step, True) for group in groups]
        best = staleness.oldest_ready(
            everything_ready, floor=step - late, max_staleness=max_staleness, count=groups_per_step
        )
        assert not staleness.stragglers(
            [group for group in everything_ready if group not in best], **at
        )


@given(groups=groups_strategy, max_staleness=st.integers(0, 3), groups_per_step=st.integers(1, 3))
@settings(max_examples=200)
def test_as_few_groups_as_possible_are_given_up_after_a_restart(
    groups: list[Group], max_staleness: int, groups_per_step: int
) -> None:
    at = {"floor": 4, "max_staleness": max_staleness, "step": 5, "groups_per_step": groups_per_step}
    gone = staleness.unusable(groups, **at)
    assert can_all_be_used([group for group in groups if group not in gone], **at)
    for fewer in range(len(gone)):
        assert not any(
            can_all_be_used([group for group in groups if group not in other], **at)
            for other in combinations(groups, fewer)
        )


def test_the_choice_of_what_is_given_up_ignores_readiness() -> None:
    """Giving up the unready ones would favour short answers: the latest dispatched go."""
    groups = [Group(0, 0, False), Group(1, 0, True), Group(2, 0, True)]
    gone = staleness.unusable(groups, floor=2, max_staleness=2, step=2, groups_per_step=1)
    assert [group.sequence for group in gone] == [1, 2]


def test_waiting_only_for_what_is_due_now_would_not_be_enough() -> None:
    """2 P slow groups of one version, due at 8: a step at 7 without them would leave all to step 8,
    which uses P.
    """
    slow = [Group(i, 0, False) for i in range(4)]
    fresh = [Group(10 + i, 5, True) for i in range(4)]
    at = {"floor": 5, "max_staleness": 8, "groups_per_step": 2}
    assert staleness.stragglers(slow + fresh[2:], step=5, **at) == ()
    late = staleness.stragglers(slow + fresh[2:], step=7, **at)
    assert late == tuple(slow)


def test_a_group_whose_start_was_not_seen_counts_as_started_by_the_slowest_generator() -> None:
    assert staleness.deadline(Group(0, None, False), floor=4, max_staleness=8) == 12
    assert staleness.deadline(Group(0, 5, False), floor=4, max_staleness=8) == 13


def test_a_violated_invariant_is_reported_not_trained_on() -> None:
    overdue = [Group(0, 0, True)]
    with pytest.raises(AssertionError, match="unusable"):
        staleness.stragglers(overdue, floor=9, max_staleness=2, step=10, groups_per_step=1)


@pytest.mark.parametrize(("max_staleness", "expected"), [(0, 0.0), (1, 0.0), (2, 7.0), (8, 1.0)])
def test_longest_group_ratio(max_staleness: int, expected: float) -> None:
    assert staleness.longest_group_ratio([1.0, 7.0, 3.0], max_staleness) == pytest.approx(expected)
    assert staleness.longest_group_ratio([], max_staleness) == 0


def test_drop_deadline_is_three_times_the_longest_rollout() -> None:
    assert staleness.drop_timeout_seconds(
        token_budget=14_336, slowest_decode_rate=40.0
    ) == pytest.approx(1075.2)


def test_enough_groups_is_little_s_law_and_never_less_than_two_batches() -> None:
    assert staleness.enough_groups([1.0, 2.0, 3.0], max_staleness=8, groups_per_step=48) == 4 * 48
    assert staleness.enough_groups([0.0], max_staleness=8, groups_per_step=48) == 2 * 48


def steps_made(outstanding: int, *, size: int, lifetime: int, turns: int) -> int:
    """Steps of a trainer that needs a turn for each and `size` groups; every second group is
    filtered on arrival.

    `outstanding` groups are kept dispatched and unsettled, each comes back after `lifetime` turns.
    """
    arrivals = [lifetime + number * lifetime / outstanding for number in range(outstanding)]
    ready, training, steps, number = 0, 0, 0, 0
    for turn in range(turns):
        came = [at for at in arrivals if at <= turn]
        arrivals = [at for at in arrivals if at > turn]
        for _ in came:
            number += 1
            ready += number % 2
        steps += training > 0
        training = size if ready >= size else 0
        ready -= training
        arrivals += [turn + lifetime] * (outstanding - len(arrivals) - ready - training)
    return steps


def test_enough_groups_feed_a_trainer_half_of_whose_groups_are_filtered_and_replaced() -> None:
    lifetimes = [3.0] * 10
    enough = staleness.enough_groups(
        lifetimes, max_staleness=8, groups_per_step=16, taken_per_step=32.0
    )
    assert enough == 2 * 16 + 3 * 32
    assert steps_made(enough, size=16, lifetime=3, turns=1000) > 950
    too_few = staleness.enough_groups(lifetimes, max_staleness=8, groups_per_step=16)
    assert too_few is not None
    assert steps_made(too_few, size=16, lifetime=3, turns=1000) < 900, (
        "filtered groups left out, it starves"
    )


@pytest.mark.parametrize("lifetimes", [[], [0.5, 7.5]])
def test_the_whole_window_is_used_before_the_first_measurement_and_with_stragglers(
    lifetimes: list[float],
) -> None:
    assert staleness.enough_groups(lifetimes, max_staleness=8, groups_per_step=48) is None
