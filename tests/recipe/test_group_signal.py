"""Why a group cannot be trained on: held against what the trainer's own filter leaves of it, and
told in words.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.recipe import Recipe
from rollcast.recipe.group_signal import (
    MIN_GROUPS_TO_WARN,
    GroupSignal,
    classify_group,
    why_none_is_used,
)
from rollcast.rollouts.records import (
    GradingStatus,
    LengthBudget,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.trainer.control.assembly import assemble
from rollcast.wire.version import PolicyVersion

VERSION = PolicyVersion(1, 0)
ROLLOUT = st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.booleans())
CUT, UNGRADED = (1.0, True, True), (0.0, False, False)
RIGHT, WRONG, HALF = (1.0, False, True), (0.0, False, True), (0.5, False, True)


def group_of(rollouts: list[tuple[float, bool, bool]]) -> RolloutGroup:
    made = [
        Rollout(
            index=index,
            token_ids=np.array([3, 2], np.int32),
            logprobs=np.array([-0.5, -0.5], np.float32),
            version_spans=(VersionSpan(VERSION, 0, 2),),
            stop_reason=StopReason.LENGTH if cut else StopReason.END,
            reward=reward,
            grading_status=(GradingStatus.OK if reward else GradingStatus.WRONG)
            if graded
            else GradingStatus.ERROR,
        )
        for index, (reward, cut, graded) in enumerate(rollouts)
    ]
    return RolloutGroup(
        sequence=1,
        attempt=0,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="d",
        prompt_id="p",
        prompt_token_ids=np.ones(3, np.int32),
        sampling=Sampling(),
        length=LengthBudget(8),
        rollouts=made,
        first_version=VERSION,
        generator="g",
    )


def signal(rollouts: list[tuple[float, bool, bool]], recipe: Recipe | None = None) -> GroupSignal:
    rewards, cut, graded = zip(*rollouts, strict=True)
    return classify_group(rewards, cut, graded, recipe or Recipe())


@settings(max_examples=25)
@given(
    rollouts=st.lists(ROLLOUT, min_size=1, max_size=6),
    excludes=st.booleans(),
    filters=st.booleans(),
)
def test_a_group_is_usable_if_the_filter_leaves_something_of_it(
    rollouts: list[tuple[float, bool, bool]], excludes: bool, filters: bool
) -> None:
    recipe = Recipe(exclude_truncated=excludes, zero_variance_filter=filters)
    assembled = assemble([group_of(rollouts)], recipe)
    assert (signal(rollouts, recipe) is GroupSignal.USABLE) == bool(assembled.sequences)


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        ([CUT] * 8, GroupSignal.TRUNCATED),
        ([(0.0, True, True)] * 8, GroupSignal.TRUNCATED),
        ([CUT] * 7 + [WRONG], GroupSignal.TRUNCATED),
        ([CUT] * 4 + [WRONG] * 4, GroupSignal.WRONG),
        ([WRONG] * 8, GroupSignal.WRONG),
        ([RIGHT] * 8, GroupSignal.RIGHT),
        ([HALF] * 8, GroupSignal.EQUAL),
        ([UNGRADED] * 8, GroupSignal.NO_VERDICT),
        ([UNGRADED] * 7 + [RIGHT], GroupSignal.NO_VERDICT),
        ([UNGRADED] * 5 + [CUT] * 3, GroupSignal.NO_VERDICT),
        ([UNGRADED] * 3 + [CUT] * 5, GroupSignal.TRUNCATED),
        ([WRONG], GroupSignal.WRONG),
        ([UNGRADED, RIGHT], GroupSignal.RIGHT),
        ([CUT, WRONG], GroupSignal.WRONG),
    ],
)
def test_a_group_that_is_not_usable_has_one_reason(
    rollouts: list[tuple[float, bool, bool]], expected: GroupSignal
) -> None:
    assert signal(rollouts) is expected


def test_wrong_because_they_were_cut_off_is_cut_off_where_such_answers_count() -> None:
    """The recipe keeps them, their answer never comes: they are graded, and wrong."""
    recipe = Recipe(exclude_truncated=False)
    assert signal([(0.0, True, True)] * 8, recipe) is GroupSignal.TRUNCATED
    assert signal([(0.0, True, True)] * 7 + [RIGHT], recipe) is GroupSignal.USABLE


def test_after_a_dozen_groups_it_is_said_why_none_is_used_and_what_to_change() -> None:
    recipe = Recipe(max_completion_tokens=32)
    assert why_none_is_used({"truncated": MIN_GROUPS_TO_WARN - 1}, recipe) is None
    assert why_none_is_used({"truncated": 400, "usable": 1}, recipe) is None
    assert why_none_is_used({"usable": 0, "truncated": 9, "wrong": 3, "right": 0}, recipe) == (
        "none of the first 12 groups can be trained on: 9 with every answer cut off, 3 with every "
        "answer wrong; raise recipe.max_completion_tokens (now 32), or give a model and a "
        "tasks.prompt_format with which answers end"
    )
    remedies = {
        "wrong": "easier prompts",
        "right": "harder prompts",
        "equal": "correct the verifier",
        "filtered": "correct the function of recipe.filter",
        "no_verdict": "tasks.grading.deadline_seconds",
    }
    for reason, remedy in remedies.items():
        assert remedy in str(why_none_is_used({reason: 12}, recipe))
