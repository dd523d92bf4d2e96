"""When a group counts as lost, and how many groups are enough, against arithmetic by hand."""

from __future__ import annotations

import json

import pytest

from rollcast.config.bounds import backstop_seconds
from rollcast.config.episodes import Episodes
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.tasks import Tasks
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import Claim, Purpose, RolloutGroup
from rollcast.tasks.grading import grading_seconds as deadline
from rollcast.trainer.control.hand_over import GroupOutlook
from rollcast.trainer.control.pacing import Pacing, longest_episode_seconds, longest_verdict_seconds
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_group, make_task


def verdict_seconds(config: RunConfig) -> float:
    """The longest wait for a verdict under these settings."""
    return longest_verdict_seconds(
        config.tasks,
        num_slots=config.generator.most_slots,
        grading_seconds=config.longest_grading_seconds,
    )


def make_pacing(token_budget: int, grading_seconds: float = 0.0) -> Pacing:
    recipe = Recipe(prompts_per_step=4, max_completion_tokens=token_budget)
    return Pacing(recipe, max_staleness=8, other_seconds=grading_seconds)


def claim(at: float) -> Claim:
    return Claim("g", PolicyVersion(1, 0), 0, "1-0", at, Purpose.TRAIN)


def test_overdue_is_three_budgets_at_the_slowest_present_rate() -> None:
    pacing = make_pacing(1_000)
    assert pacing.overdue({1: claim(0.0)}, now_seconds=1e9, redis_back_at=0.0) == [], (
        "nothing is known yet"
    )
    pacing.observe_rates([10.0, 40.0, 0.0])
    assert pacing.overdue(
        {1: claim(0.0), 2: claim(10.0)}, now_seconds=305.0, redis_back_at=0.0
    ) == [1]
    pacing.observe_rates([40.0])
    assert pacing.overdue({1: claim(0.0)}, now_seconds=80.0, redis_back_at=0.0) == [1], (
        "a generator that left does not count"
    )


def test_a_small_budget_has_a_minute() -> None:
    pacing = make_pacing(10)
    pacing.observe_rates([100.0])
    assert pacing.overdue({1: claim(0.0)}, now_seconds=59.0, redis_back_at=0.0) == []
    assert pacing.overdue({1: claim(0.0)}, now_seconds=61.0, redis_back_at=0.0) == [1]


def test_a_group_that_waits_for_graders_is_not_overdue() -> None:
    pacing = make_pacing(1_000, grading_seconds=640.0)
    pacing.observe_rates([10.0])
    assert pacing.overdue({1: claim(0.0)}, now_seconds=939.0, redis_back_at=0.0) == []
    assert pacing.overdue({1: claim(0.0)}, now_seconds=941.0, redis_back_at=0.0) == [1]


@pytest.mark.parametrize(
    ("verifier", "seconds"),
    [
        ("exact", 0.0),
        ("math", 12 * 22.5),
        ("code", 12 * 22.5),
    ],  # 100 slots, 9 at a time: 12 rounds of 3 times 7.5 s
)
def test_what_works_in_the_sandbox_may_wait_until_every_slot_before_it_is_graded(
    verifier: str, seconds: float
) -> None:
    config = parse_run_config(
        {
            "run": "r",
            "model": {"path": "none"},
            "tasks": {
                "dataset": {"kind": "jsonl", "name": "d", "path": "d.jsonl", "verifier": verifier},
                "grading": {"processes": 9, "deadline_seconds": 7.5},
            },
            "generator": {"slots": 100},
        },
        source="test",
    )
    assert verdict_seconds(config) == seconds


def test_the_wait_for_graders_is_bounded_and_needs_no_verifier_installed_here() -> None:
    config = parse_run_config(
        {
            "run": "r",
            "model": {"path": "none"},
            "tasks": {
                "dataset": {
                    "kind": "jsonl",
                    "name": "d",
                    "path": "d.jsonl",
                    "verifier": "of-another-image",
                },
                "grading": {"processes": 4},
            },
            "generator": {"slots": 64},
        },
        source="test",
    )
    many = json.dumps({"kind": "stdin", "cases": [{"input": "", "output": ""}] * 512})
    longest = backstop_seconds(deadline(config.tasks.grading, "code", many))
    assert verdict_seconds(config) == 16 * longest
    assert longest < config.grader.patience_seconds


def test_nothing_is_narrowed_before_the_first_step() -> None:
    pacing = make_pacing(10)
    assert pacing.enough() is None
    assert pacing.longest_ratio() == pytest.approx(0.0)


def test_the_time_without_redis_makes_nothing_overdue() -> None:
    pacing = make_pacing(10)
    pacing.observe_rates([100.0])
    assert pacing.overdue({1: claim(0.0)}, now_seconds=159.0, redis_back_at=100.0) == []
    assert pacing.overdue({1: claim(0.0)}, now_seconds=161.0, redis_back_at=100.0) == [1]


def made(
    seconds: float, lengths: list[int], *, lifetime: float = 1.0
) -> tuple[float, list[RolloutGroup]]:
    """A step of `seconds` that took groups with rollouts of these lengths."""
    claimed = Claimed(make_task(1), "1-0", PolicyVersion(1, 0))
    groups = [make_group(claimed, "g", length=length) for length in lengths]
    for group in groups:
        group.started_at, group.finished_at = 100.0, 100.0 + lifetime
    return seconds, groups


def test_the_outlook_is_the_median_step_and_the_longest_recent_rollout() -> None:
    pacing = make_pacing(100)
    assert pacing.outlook(waiting=2) is None
    for seconds, length in ((2.0, 30), (9.0, 70), (3.0, 10)):
        pacing.step_made(*made(seconds, [1, length, 2, 3]))
    assert pacing.outlook(waiting=2) == GroupOutlook(
        step_seconds=3.0, longest_tokens=70, token_budget=100, queue_seconds=1.5
    )


def test_filtered_and_replaced_groups_count_among_those_that_feed_the_trainer() -> None:
    pacing = make_pacing(100)
    for taken in (4, 12):  # of 4 trained on each
        pacing.step_made(*made(2.0, [5] * taken, lifetime=6.0))
    assert pacing.enough() == 2 * 4 + 3 * 8, "two batches of 4, and 8 a step that live for 3 steps"
    outlook = pacing.outlook(waiting=4)
    assert outlook is not None
    assert outlook.queue_seconds == pytest.approx(1.0), "8 are claimed in 2 s"


def test_a_group_whose_environments_start_again_is_not_overdue() -> None:
    world = {"kind": "tools", "name": "w", "tools": ["calculator"], "reset_seconds": 20.0}
    world |= {"call_seconds": 5.0, "restarts": 2}
    tasks = Tasks.model_validate({"environments": [world]})
    assert longest_episode_seconds(tasks, Episodes(max_seconds=100.0)) == 3 * 2 * (
        20.0 + 100.0 + 5.0
    )
    assert longest_episode_seconds(Tasks(), Episodes()) == 0.0
