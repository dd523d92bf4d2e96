"""Groups that no honest generator produces: every field of a group is compared with its task, or
has bounds.
"""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.generator.completion import Completion
from rollcast.rollouts.base import MAX_FAILURES
from rollcast.rollouts.codec import decode_group, encode_group
from rollcast.rollouts.records import (
    GradingStatus,
    KvMark,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.trainer.control.defects import DefectFinder
from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_answer_group, make_rollout, make_task
from testkit.trainer.states import make_state

LENGTH, BUDGET, VOCAB = 6, 12, 16
COPIED = {
    "incarnation", "purpose", "dataset", "prompt_id", "prompt_token_ids", "sampling", "length",
    "eval_step",
}  # fmt: skip
"""Fields of a group that a generator copies from its task."""
FREE = {
    "sequence",
    "attempt",
    "rollouts",
    "first_version",
    "generator",
    "started_at",
    "finished_at",
    "hand_backs",
}
"""Fields that it says itself. By its sequence the task is found, so that it cannot differ."""


def a_task(**changes: Any) -> PromptTask:
    return make_task(3, sampling=Sampling(temperature=0.7), length=LengthBudget(BUDGET), **changes)


def an_answer(task: PromptTask) -> RolloutGroup:
    return make_answer_group(
        task, [make_rollout(index, LENGTH) for index in range(task.num_rollouts)]
    )


def found(task: PromptTask, group: RolloutGroup) -> str | None:
    state = make_state(history=SurvivingHistory((), VERSION.incarnation), published=VERSION)
    return DefectFinder(state, VOCAB, max_length=64).find(group, task)


def with_rollout(group: RolloutGroup, **changes: Any) -> RolloutGroup:
    return dataclasses.replace(
        group, rollouts=[group.rollouts[0], dataclasses.replace(group.rollouts[1], **changes)]
    )


def test_every_field_of_a_group_is_either_copied_or_said() -> None:
    assert {field.name for field in dataclasses.fields(RolloutGroup)} == COPIED | FREE


def test_a_good_group_passes_as_it_is_and_as_it_travels() -> None:
    """0.7 is another number once it was a float32."""
    task = a_task()
    assert found(task, an_answer(task)) is None
    assert found(task, decode_group(encode_group(an_answer(task)))) is None


numbers = st.floats(0, 2, width=32)
counts = st.integers(0, 2**31 - 1)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=3).map(tuple)
OTHERS: dict[str, Any] = {
    "incarnation": st.integers(0, 2**32 - 1),
    "purpose": st.just(Purpose.EVAL),
    "dataset": st.text(max_size=9) | st.just("d" * (1 << 20)),
    "prompt_id": st.text(max_size=9) | st.just("p" * (1 << 20)),
    "prompt_token_ids": tokens.map(lambda ids: np.array(ids, np.int32)),
    "sampling": st.builds(Sampling, numbers, numbers, counts, counts)
    | st.just(Sampling(temperature=float("nan"))),
    "length": st.builds(LengthBudget, counts, counts, counts, counts, tokens, tokens, counts),
    "eval_step": st.integers(1, 2**32 - 1),
}


@given(st.data(), st.sampled_from(sorted(COPIED)))
@settings(deadline=None)
def test_no_copied_field_can_be_another(data: st.DataObject, name: str) -> None:
    task = a_task()
    value: Any = data.draw(OTHERS[name])
    same = (
        np.array_equal(value, task.prompt_token_ids)
        if name == "prompt_token_ids"
        else value == getattr(task, name)
    )
    told = found(task, dataclasses.replace(an_answer(task), **dict[str, Any]({name: value})))
    assert (told is None) is same
    assert len(told or "") < 1000


@given(
    st.sampled_from(list(GradingStatus)),
    st.floats(width=32) | st.sampled_from([0.0, 0.5, 1.0, -1.0]),
)
def test_a_reward_is_that_of_its_verdict(status: GradingStatus, reward: float) -> None:
    task = a_task()
    right, none = status is GradingStatus.OK, status is not GradingStatus.UNGRADED
    possible = (right and 0 < reward <= 1) or (not right and none and reward == 0)
    told = found(task, with_rollout(an_answer(task), grading_status=status, reward=reward))
    assert (told is None) == possible


@given(
    st.lists(st.floats(-103.25, 0.0, width=32), min_size=LENGTH, max_size=LENGTH),
    st.integers(0, LENGTH - 1),
)
def test_a_log_probability_is_one_of_float32(values: list[float], place: int) -> None:
    task, logprobs = a_task(), np.array(values, np.float32)
    assert found(task, with_rollout(an_answer(task), logprobs=logprobs)) is None
    for wrong in (-1e30, -3.4e38, -105.0, -np.inf, np.inf, np.nan, 2e-4, 1e30):
        spoilt = logprobs.copy()
        spoilt[place] = wrong
        assert "rollout 1 has a log-prob" in str(
            found(task, with_rollout(an_answer(task), logprobs=spoilt))
        )


@given(st.integers(0, 40), st.sampled_from([StopReason.END, StopReason.LENGTH]))
def test_a_rollout_has_at_most_its_budget_and_is_truncated_only_there(
    length: int, stop_reason: StopReason
) -> None:
    task = a_task()
    group = an_answer(task)
    group.rollouts[1] = make_rollout(
        1, length, stop_reason=stop_reason, token_ids=np.zeros(length, np.int32)
    )
    possible = length == BUDGET if stop_reason is StopReason.LENGTH else 1 <= length <= BUDGET
    assert (found(task, group) is None) == possible


def interrupted(phrase_at: int, answer: int, **changes: Any) -> Rollout:
    """Thinking, a phrase of two tokens, and an answer."""
    length = phrase_at + 2 + answer
    token_ids = np.full(length, 3, np.int32)
    token_ids[phrase_at : phrase_at + 2] = (9, 8)
    given: dict[str, Any] = {
        "token_ids": token_ids,
        "interrupted": True,
        "loss_masked": ((phrase_at, phrase_at + 2),),
    } | changes
    return make_rollout(1, length, **given)


@pytest.mark.parametrize(
    ("rollout", "told"),
    [
        (interrupted(3, 2), None),
        (interrupted(4, 3), None),
        (interrupted(4, 3, stop_reason=StopReason.LENGTH), None),
        (interrupted(2, 2), "loss-mask range"),
        (interrupted(5, 2), "loss-mask range"),
        (interrupted(3, 4), "4 tokens of answer, at most 3"),
        (interrupted(3, 2, stop_reason=StopReason.LENGTH), "truncated after 7 of 8"),
        (interrupted(3, 2, interrupted=False), "was not interrupted"),
        (interrupted(3, 2, loss_masked=()), "loss-mask range"),
        (interrupted(3, 2, loss_masked=((3, 5), (6, 7))), "loss-mask range"),
        (interrupted(3, 2, loss_masked=((3, 7),)), "loss-mask range"),
        (interrupted(3, 2, token_ids=np.zeros(7, np.int32)), "another phrase"),
    ],
)
def test_only_the_phrase_of_an_interrupted_rollout_carries_no_loss(
    rollout: Rollout, told: str | None
) -> None:
    task = a_task()
    task.length = LengthBudget(BUDGET, 3, 4, 3, phrase=(9, 8))
    group = an_answer(task)
    group.rollouts[1] = rollout
    assert str(told) in str(found(task, group))
    if rollout.interrupted:
        task.length = group.length = LengthBudget(BUDGET)
        assert "its task interrupts none" in str(found(task, group))


@given(
    st.randoms(use_true_random=False),
    st.integers(3, 6),
    st.integers(0, 3),
    st.integers(1, 4),
    st.booleans(),
)
@settings(deadline=None)
def test_what_the_generator_makes_of_a_task_passes(
    rng: random.Random, low: int, more: int, answer: int, has_marker: bool
) -> None:
    """The generator's own rules of legs, cut and budget, with an engine that samples at random."""
    phrase, marker = (9, 8), (7,) if has_marker else ()
    most = low + more + len(phrase) + answer + rng.randint(0, 3)
    task = a_task()
    task.length = LengthBudget(
        most, low, low + more, answer, phrase=phrase, end_of_thinking=marker, seed=5
    )
    group = an_answer(task)
    for index in range(task.num_rollouts):
        completion = Completion(task, index, lambda token_ids: " ".join(map(str, token_ids)))
        while completion.stop_reason is StopReason.RUNNING:
            leg = completion.next_leg()
            if leg is None:
                completion.stop_reason = StopReason.LENGTH
                break
            if leg.force_phrase:
                completion.force_phrase(VERSION)
            is_end = rng.random() < 0.3
            count = rng.randint(1, leg.max_tokens) if is_end else leg.max_tokens
            token_ids = [rng.randrange(VOCAB) for _ in range(count)]
            completion.append(token_ids, [-rng.random()] * count, [VersionSpan(VERSION, 0, count)])
            if is_end:
                completion.stop_reason = StopReason.END
        rollout = completion.rollout()
        group.rollouts[index] = dataclasses.replace(
            rollout, grading_status=GradingStatus.WRONG, partial=False
        )
    assert found(task, decode_group(encode_group(group))) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"first_version": PolicyVersion(1, 3)}, "names 1.3 as its oldest version"),
        ({"first_version": PolicyVersion(0, 3)}, "names the version 0.3"),
        ({"attempt": MAX_FAILURES}, "attempt 3"),
    ],
)
def test_what_a_group_says_itself_has_bounds(change: dict[str, Any], told: str) -> None:
    task = a_task()
    assert told in str(found(task, dataclasses.replace(an_answer(task), **change)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grading_seconds": -1.0}, "graded for -1 s"),
        ({"grading_seconds": 1e30}, "graded for 1e+30 s"),
        ({"grading_seconds": float("nan")}, "graded for nan s"),
        ({"kv_marks": (KvMark(0, 1, VERSION),)}, "KV mark at 0"),
        ({"kv_marks": (KvMark(LENGTH, 1, VERSION),)}, "KV mark at 6"),
        ({"kv_marks": (KvMark(2, 99, VERSION),)}, "keeps 99"),
        ({"kv_marks": (KvMark(2, 1, PolicyVersion(1, 6)),)}, "version 1.6, which sampled none"),
    ],
)
def test_what_a_rollout_says_has_bounds(change: dict[str, Any], told: str) -> None:
    task = a_task()
    assert told in str(found(task, with_rollout(an_answer(task), **change)))


# Asked by several incarnations


def test_a_group_is_compared_with_the_task_of_its_own_incarnation() -> None:
    """The temperature, the budget, the data set's name and the prompt's template were changed
    before the resume.
    """
    ledger = Ledger()
    before = a_task(incarnation=1, dataset="old", prompt_token_ids=np.array([4, 4], np.int32))
    now = dataclasses.replace(make_task(3), incarnation=2, length=LengthBudget(99))
    ledger.outstanding[3] = now.prompt_id
    ledger.note_dispatch(before)
    ledger.note_dispatch(now)
    restored = Progress.from_json(json.loads(json.dumps(Progress(ledger=ledger).as_json()))).ledger
    assert restored == ledger
    assert restored is not None
    for asked in (before, now):
        answer = decode_group(encode_group(an_answer(asked)))
        assert found(restored.own_task(answer, now), answer) is None
    mixed = dataclasses.replace(an_answer(before), length=now.length)
    assert "length budget" in str(found(restored.own_task(mixed, now), mixed))
    mixed = dataclasses.replace(an_answer(before), prompt_token_ids=np.array([4, 5], np.int32))
    assert "other tokens" in str(found(restored.own_task(mixed, now), mixed))
    never = dataclasses.replace(an_answer(now), incarnation=3)
    assert "never dispatched this task" in str(found(restored.own_task(never, now), never))
    restored.settle(3)
    assert restored.asked == {}
