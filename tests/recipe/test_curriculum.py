"""The curriculum as a state machine: order, permanent removal, resume without a lost or repeated
prompt.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.recipe.curriculum import Curriculum

IDS = [f"math/{i}" for i in range(12)]

# One action: draw, or observe (prompt index, sum of rewards, graded).
actions = st.lists(
    st.one_of(
        st.just(None),
        st.tuples(st.integers(0, 11), st.integers(0, 16), st.integers(0, 16)).filter(
            lambda a: a[1] <= a[2]
        ),
    ),
    max_size=120,
)


def play(curriculum: Curriculum, script: list[tuple[int, int, int] | None]) -> list[str | None]:
    drawn = []
    for action in script:
        if action is None:
            drawn.append(curriculum.draw())
        else:
            curriculum.observe(
                IDS[action[0]], reward=action[1], graded=action[2], sampled=action[2]
            )
    return drawn


@settings(max_examples=25)
@given(script=actions, seed=st.integers(0, 5), remove_at=st.sampled_from([None, 0.5, 0.9, 1.0]))
def test_draws_follow_an_obvious_model(
    script: list[tuple[int, int, int] | None], seed: int, remove_at: float | None
) -> None:
    """Removed prompts never come again; of the others each comes once per epoch."""
    curriculum = Curriculum(IDS, seed=seed, remove_at=remove_at)
    history: dict[str, list[int]] = {}
    removed: set[str] = set()
    seen_in_epoch: Counter[tuple[int, str]] = Counter()
    for action in script:
        if action is None:
            prompt = curriculum.draw()
            if len(removed) == len(IDS):
                assert prompt is None
                continue
            assert prompt is not None
            assert prompt not in removed
            seen_in_epoch[curriculum.state()["epoch"], prompt] += 1
            assert seen_in_epoch[curriculum.state()["epoch"], prompt] == 1
        else:
            prompt = IDS[action[0]]
            curriculum.observe(prompt, reward=action[1], graded=action[2], sampled=action[2])
            counts = history.setdefault(prompt, [0, 0])
            counts[0] += action[1]
            counts[1] += action[2]
            if remove_at is not None and counts[1] and counts[0] / counts[1] >= remove_at:
                removed.add(prompt)
    assert curriculum.num_removed == len(removed)
    for epoch in range(curriculum.state()["epoch"]):
        drawn = {prompt for (of, prompt) in seen_in_epoch if of == epoch}
        assert drawn >= set(IDS) - removed, "an epoch ended before every remaining prompt came"


@settings(max_examples=25)
@given(script=actions, cut=st.integers(0, 120), seed=st.integers(0, 5))
def test_a_resumed_curriculum_continues_as_if_never_stopped(
    script: list[tuple[int, int, int] | None], cut: int, seed: int
) -> None:
    whole = Curriculum(IDS, seed=seed)
    expected = play(whole, script)
    first = Curriculum(IDS, seed=seed)
    before = play(first, script[:cut])
    second = Curriculum(IDS, seed=seed)
    second.restore(json.loads(json.dumps(first.state())))
    assert before + play(second, script[cut:]) == expected
    assert second.state() == whole.state()


@settings(max_examples=25)
@given(
    before=st.integers(0, 30),
    after=st.integers(0, 30),
    removed=st.sets(st.integers(0, 11), max_size=4),
)
def test_after_a_crash_the_same_prompts_are_drawn_again(
    before: int, after: int, removed: set[int]
) -> None:
    curriculum = Curriculum(IDS, seed=1)
    for i in removed:
        curriculum.observe(IDS[i], reward=16, graded=16, sampled=16)
    for _ in range(before):
        curriculum.draw()
    checkpoint = curriculum.state()
    lost_history = [curriculum.draw() for _ in range(after)]
    resumed = Curriculum(IDS, seed=1)
    resumed.restore(checkpoint)
    assert [resumed.draw() for _ in range(after)] == lost_history


def test_epochs_are_different_permutations_and_seeds_differ() -> None:
    curriculum = Curriculum(IDS, seed=0)
    epochs = [[curriculum.draw() for _ in IDS] for _ in range(4)]
    assert all(sorted(map(str, epoch)) == sorted(IDS) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert Curriculum(IDS, seed=1).draw() != Curriculum(IDS, seed=2).draw()


def test_the_order_is_the_same_on_every_machine() -> None:
    curriculum = Curriculum(IDS, seed=7)
    drawn = [curriculum.draw() for _ in range(6)]
    assert drawn == ["math/10", "math/5", "math/0", "math/9", "math/8", "math/3"]


def test_removal_uses_the_whole_history_and_is_permanent() -> None:
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.observe("a", reward=10, graded=16, sampled=16)
    curriculum.observe("a", reward=16, graded=16, sampled=16)  # 26/32
    assert curriculum.num_removed == 0
    for _ in range(3):
        curriculum.observe("a", reward=16, graded=16, sampled=16)
    assert curriculum.pass_rate("a") == 74 / 80
    assert curriculum.num_removed == 1
    curriculum.observe("a", reward=0, graded=16, sampled=16)  # a late group does not bring it back
    assert {curriculum.draw() for _ in range(5)} == {"b"}
    assert curriculum.state()["history"]["a"] == [74, 96, 6, 96], (
        "reward, graded, evaluations, sampled"
    )


def test_exactly_the_threshold_is_removed() -> None:
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.observe("a", reward=27, graded=30, sampled=30)
    assert curriculum.num_removed == 1


def test_a_prompt_is_removed_only_where_no_missing_verdict_could_keep_it() -> None:
    """Eight right answers beside eight that the grader failed on do not make a prompt an easy
    one.
    """
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.observe("a", reward=8, graded=8, sampled=16)
    assert (curriculum.num_removed, curriculum.pass_rate("a")) == (0, 1.0)
    resumed = Curriculum(["a", "b"], seed=0)
    resumed.restore(json.loads(json.dumps(curriculum.state())))
    for _ in range(3):
        resumed.observe("a", reward=16, graded=16, sampled=16)  # 56 of 64 in the end
    assert resumed.num_removed == 0
    resumed.observe("a", reward=16, graded=16, sampled=16)  # 72 of 80
    assert resumed.num_removed == 1


def test_rewards_that_travelled_as_float32_reach_the_threshold_all_the_same() -> None:
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.observe(
        "a", reward=sum(float(np.float32(0.9)) for _ in range(16)), graded=16, sampled=16
    )
    assert curriculum.num_removed == 1


def test_checkpoints_that_do_not_say_how_many_were_sampled_are_read() -> None:
    state = Curriculum(["a", "b"], seed=0).state()
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.restore(state | {"history": {"a": [26, 32, 2]}})
    curriculum.observe("a", reward=16, graded=16, sampled=16)
    assert curriculum.pass_rate("a") == 42 / 48
    curriculum.observe("a", reward=16, graded=16, sampled=16)
    assert curriculum.num_removed == 1


def test_a_checkpoint_with_whole_numbers_of_right_answers_is_gone_on_with_in_parts() -> None:
    curriculum = Curriculum(["a", "b"], seed=0)
    curriculum.restore(curriculum.state() | {"history": {"a": [3, 4, 1, 4]}})
    curriculum.observe("a", reward=0.5, graded=4, sampled=4)
    assert (curriculum.pass_rate("a"), curriculum.counts("a")) == (3.5 / 8, (3.5, 8))
    resumed = Curriculum(["a", "b"], seed=0)
    resumed.restore(json.loads(json.dumps(curriculum.state())))
    assert resumed.state()["history"] == curriculum.state()["history"]


@settings(max_examples=25)
@given(
    groups=st.lists(st.lists(st.floats(0, 1, width=32), max_size=6), max_size=6),
    failed=st.integers(0, 3),
)
def test_a_prompt_leaves_when_its_mean_reward_reaches_the_threshold(
    groups: list[list[float]], failed: int
) -> None:
    curriculum = Curriculum(["a", "b"], seed=0)
    is_gone, sampled = False, 0
    for number, rewards in enumerate(groups):
        curriculum.observe(
            "a", reward=sum(rewards), graded=len(rewards), sampled=len(rewards) + failed
        )
        seen = [Fraction(reward) for group in groups[: number + 1] for reward in group]
        sampled += len(rewards) + failed
        if not seen:
            assert curriculum.pass_rate("a") is None
            continue
        mean = sum(seen, Fraction()) / len(seen)
        assert curriculum.pass_rate("a") == pytest.approx(float(mean))
        assume(abs(sum(seen, Fraction()) / sampled - Fraction(0.9)) > 1e-5)
        is_gone |= sum(seen) > Fraction(0.9) * sampled
        assert curriculum.num_removed == is_gone


def test_a_group_without_a_verdict_changes_nothing() -> None:
    curriculum = Curriculum(["a"], seed=0)
    curriculum.observe("a", reward=0, graded=0, sampled=0)
    assert curriculum.pass_rate("a") is None
    assert curriculum.draw() == "a"


def test_mistakes_of_the_user_are_named() -> None:
    with pytest.raises(UserError, match="'a' occurs more than once"):
        Curriculum(["a", "b", "a"], seed=0)
    with pytest.raises(UserError, match="holds no prompt"):
        Curriculum([], seed=0)
    state = Curriculum(["a", "b"], seed=0).state()
    with pytest.raises(UserError, match="prompts differ"):
        Curriculum(["b", "a"], seed=0).restore(state)
    with pytest.raises(UserError, match="seed: 0"):
        Curriculum(["a", "b"], seed=1).restore(state)
