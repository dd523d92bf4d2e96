"""What the schedules say in states worked out by hand.

That they are strict and live: tests/simulation.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rollcast
from rollcast.config import recipe as config
from rollcast.recipe.schedule import (
    Batch,
    PipelineRL,
    PipelineState,
    PPOOffPolicy,
    Wait,
    WaitReason,
    make_schedule,
)
from rollcast.recipe.staleness import Group


def state(
    step: int,
    groups: list[Group] | None = None,
    *,
    since_start: int | None = None,
    acknowledged: int | None = -99,
) -> PipelineState:
    """A state whose members hold the newest weights unless said otherwise."""
    return PipelineState(
        step=step,
        steps_since_start=step if since_start is None else since_start,
        acknowledged=step if acknowledged == -99 else acknowledged,
        groups=tuple(groups or ()),
    )


def ready(first: int, count: int, start: int = 0) -> list[Group]:
    return [Group(start + i, first, True) for i in range(count)]


def started(first: int, count: int, start: int = 100) -> list[Group]:
    return [Group(start + i, first, False) for i in range(count)]


@pytest.mark.parametrize("max_staleness", range(17))
def test_the_window_opens_at_p_and_grows_to_k_plus_1_minus_l_batches(max_staleness: int) -> None:
    schedule = PipelineRL(max_staleness=max_staleness, groups_per_step=3)
    widest = max_staleness + 1 - min(1, max_staleness)
    for step in range(20):
        assert schedule.dispatch(state(step)) == 3 * min(1 + step, widest)


def test_dispatch_fills_up_to_the_window_and_no_further() -> None:
    schedule = PipelineRL(max_staleness=4, groups_per_step=3)
    assert schedule.dispatch(state(9, ready(8, 5) + started(9, 2))) == 5
    assert schedule.dispatch(state(9, started(9, 12))) == 0
    assert schedule.dispatch(state(9, started(9, 15))) == 0


def test_the_last_batch_of_the_window_waits_for_the_newest_weights() -> None:
    schedule = PipelineRL(max_staleness=4, groups_per_step=3)
    assert schedule.dispatch(state(9, started(8, 9), acknowledged=8)) == 0
    assert schedule.dispatch(state(9, started(8, 8), acknowledged=8)) == 1
    assert schedule.dispatch(state(9, started(8, 9), acknowledged=9)) == 3


def test_after_a_restart_the_window_does_not_burst() -> None:
    schedule = PipelineRL(max_staleness=8, groups_per_step=3)
    assert schedule.dispatch(state(100, since_start=0)) == 3
    assert schedule.dispatch(state(100, started(99, 20), since_start=0)) == 0
    assert schedule.dispatch(state(101, started(99, 2), since_start=1)) == 4


def test_a_batch_is_the_p_oldest_ready_groups() -> None:
    schedule = PipelineRL(max_staleness=8, groups_per_step=2)
    groups = [
        Group(0, 5, True),
        Group(1, 3, True),
        Group(2, 2, False),
        Group(3, 3, True),
        Group(4, 4, True),
    ]
    assert schedule.next_batch(state(6, groups)) == Batch((1, 3))


def test_too_few_ready_groups_are_a_wait_for_the_batch() -> None:
    schedule = PipelineRL(max_staleness=8, groups_per_step=2)
    assert schedule.next_batch(state(6, ready(5, 1) + started(5, 9))) == Wait(WaitReason.BATCH)


def test_due_groups_are_waited_for_and_named() -> None:
    schedule = PipelineRL(max_staleness=2, groups_per_step=2)
    groups = ready(4, 2) + started(3, 2)
    assert schedule.next_batch(state(4, groups)) == Batch((0, 1))
    assert schedule.next_batch(state(5, groups)) == Wait(WaitReason.STRAGGLER, (100, 101))


def test_weights_in_use_nowhere_stop_both_dispatch_and_training() -> None:
    schedule = PipelineRL(max_staleness=8, groups_per_step=2)
    assert schedule.next_batch(state(6, ready(5, 2), acknowledged=5)) == Batch((0, 1))
    late = state(6, ready(5, 2), acknowledged=4)
    assert schedule.next_batch(late) == Wait(WaitReason.WEIGHTS)
    assert schedule.dispatch(late) == 0


def test_without_members_what_is_ready_is_trained_and_tasks_are_queued() -> None:
    schedule = PipelineRL(max_staleness=8, groups_per_step=2)
    alone = state(6, ready(5, 2), acknowledged=None)
    assert schedule.next_batch(alone) == Batch((0, 1))
    assert schedule.dispatch(alone) == 12


def test_on_policy_is_lockstep() -> None:
    schedule = PipelineRL(max_staleness=0, groups_per_step=2)
    assert schedule.dispatch(state(5)) == 2
    assert schedule.dispatch(state(5, acknowledged=4)) == 0
    assert schedule.next_batch(state(5, ready(5, 1) + started(5, 1))) == Wait(WaitReason.BATCH)
    assert schedule.next_batch(state(5, ready(5, 2))) == Batch((0, 1))
    assert schedule.publishes(6)


def test_ppo_off_policy_generates_k_batches_then_trains_k_times_then_publishes() -> None:
    schedule = PPOOffPolicy(updates=3, groups_per_step=2)
    assert [schedule.publishes(step) for step in range(7)] == [
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert schedule.dispatch(state(6)) == 6
    assert schedule.next_batch(state(6, ready(6, 5) + started(6, 1))) == Wait(WaitReason.BATCH)
    assert schedule.next_batch(state(6, ready(6, 6))) == Batch((0, 1))
    # Inside the round nothing is dispatched, and the generators keep the round's weights.
    assert schedule.dispatch(state(7, ready(6, 4), acknowledged=6)) == 0
    assert schedule.next_batch(state(8, ready(6, 2), acknowledged=6)) == Batch((0, 1))
    assert schedule.next_batch(state(9, acknowledged=6)) == Wait(WaitReason.WEIGHTS)


def test_ppo_off_policy_replaces_lost_groups_within_the_round() -> None:
    schedule = PPOOffPolicy(updates=3, groups_per_step=2)
    torn = state(7, ready(6, 3), acknowledged=6)
    assert schedule.dispatch(torn) == 1
    assert schedule.next_batch(torn) == Wait(WaitReason.BATCH)


def test_ppo_off_policy_resumes_inside_a_round() -> None:
    schedule = PPOOffPolicy(updates=4, groups_per_step=2)
    assert schedule.dispatch(state(9, since_start=0)) == 6


def test_survivors_that_no_step_can_use_are_given_up() -> None:
    schedule = PipelineRL(max_staleness=2, groups_per_step=1)
    assert schedule.unusable(state(5, ready(2, 1) + started(3, 2) + started(5, 1, start=200))) == (
        0,
        101,
    )


def test_the_recipe_names_its_schedule() -> None:
    assert make_schedule(config.PipelineSchedule(), groups_per_step=48) == PipelineRL(8, 48)
    assert make_schedule(config.PPOOffPolicySchedule(), groups_per_step=48) == PPOOffPolicy(8, 48)


def test_the_gate_needs_neither_torch_nor_numpy() -> None:
    program = (
        "import rollcast.recipe.schedule, sys; assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    source_root = Path(rollcast.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=source_root, timeout=60)
