"""Legs, spans and marks of a completion, checked against what the records promise."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollcast.generator.completion import Completion
from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.records import KvMark, Leg, LegKind, LengthBudget, PromptTask, Purpose, Sampling, VersionSpan
from rollcast.wire.version import PolicyVersion

V7, V8 = PolicyVersion(1, 7), PolicyVersion(1, 8)
PHRASE = (90, 91)
MARKER = (50, 51)


def make_task(length: LengthBudget, sequence: int = 4) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="test",
        prompt_id="p",
        prompt_token_ids=np.arange(5, dtype=np.int32),
        num_rollouts=2,
        sampling=Sampling(),
        length=length,
        verifier="exact",
        reference='""',
    )


def interrupted_task(max_tokens: int = 40, answer_tokens: int = 8) -> PromptTask:
    return make_task(
        LengthBudget(
            max_tokens=max_tokens,
            interrupt_from=10,
            interrupt_to=14,
            answer_tokens=answer_tokens,
            phrase=PHRASE,
            end_of_thinking=MARKER,
            seed=2,
        )
    )


def cut_of(task: PromptTask, index: int) -> int:
    return interruption_position(seed=2, sequence=task.sequence, rollout=index, low=10, high=14)


def test_the_example_of_the_records() -> None:
    task = make_task(LengthBudget(max_tokens=100, interrupt_from=3, interrupt_to=3, answer_tokens=9, phrase=(90,)))
    completion = Completion(task, 0)
    completion.append([1, 2, 3], [-1.0, -2.0, -3.0], [VersionSpan(V7, 0, 3)])
    assert completion.next_leg() == (9, True)
    completion.force_phrase(V7)
    completion.append([4, 5], [-4.0, -5.0], [VersionSpan(V8, 0, 2)])
    completion.mark_rebuild(4, 32)
    rollout = completion.rollout()
    assert rollout.token_ids.tolist() == [1, 2, 3, 90, 4, 5]
    assert rollout.logprobs.tolist() == [-1, -2, -3, 0, -4, -5]
    assert rollout.legs == (Leg(LegKind.THINKING, 0, 3), Leg(LegKind.PHRASE, 3, 4), Leg(LegKind.ANSWER, 4, 6))
    assert rollout.loss_masked == ((3, 4),)
    assert rollout.version_spans == (VersionSpan(V7, 0, 4), VersionSpan(V8, 4, 6))
    assert rollout.kv_marks == (KvMark(4, 32, V8),)
    assert rollout.partial
    assert rollout.interrupted


def test_thinking_that_ended_in_time_goes_on_without_the_phrase() -> None:
    task = interrupted_task()
    cut = cut_of(task, 0)
    completion = Completion(task, 0)
    tokens = [1] * (cut - 3) + list(MARKER) + [1]
    completion.append(tokens, [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    assert completion.next_leg() == (40 - cut, False)


def test_a_marker_that_straddles_the_cut_came_too_late() -> None:
    task = interrupted_task()
    cut = cut_of(task, 0)
    completion = Completion(task, 0)
    completion.append([1] * (cut - 1) + [MARKER[0]], [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    leg = completion.next_leg()
    assert leg is not None
    assert leg.force_phrase


def test_without_room_for_an_answer_the_rollout_is_truncated() -> None:
    task = interrupted_task(max_tokens=12)
    completion = Completion(task, 0)
    cut = cut_of(task, 0)
    completion.append([1] * cut, [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    assert completion.next_leg() is None


@given(data=st.data(), index=st.integers(0, 5), stops=st.integers(0, 1000))
def test_any_split_into_partial_rollouts_keeps_the_budgets(data: st.DataObject, index: int, stops: int) -> None:
    """Sampled in random pieces, each through the record as a hand-back does it: the legs come out the same."""
    task = interrupted_task()
    completion = Completion(task, index)
    whole = random.Random(stops)
    while (leg := completion.next_leg()) is not None:
        assert leg.max_tokens > 0
        if leg.force_phrase:
            completion.force_phrase(V7)
        num = data.draw(st.integers(0, leg.max_tokens))
        version = whole.choice([V7, V8])
        completion.append([1] * num, [-1.0] * num, [VersionSpan(version, 0, num)] if num else [])
        completion = Completion(task, index, completion.rollout())
        if num == 0:
            num = leg.max_tokens if not leg.force_phrase else 1
            completion.append([1] * num, [-1.0] * num, [VersionSpan(V8, 0, num)])
    rollout = completion.rollout()
    cut = cut_of(task, index)
    assert [leg.kind for leg in rollout.legs] == [LegKind.THINKING, LegKind.PHRASE, LegKind.ANSWER]
    assert [(leg.start, leg.end) for leg in rollout.legs] == [(0, cut), (cut, cut + 2), (cut + 2, cut + 10)]
    assert rollout.version_spans[0].start == 0
    assert rollout.version_spans[-1].end == rollout.num_tokens == len(rollout.logprobs)
    for before, after in zip(rollout.version_spans, rollout.version_spans[1:], strict=False):
        assert before.end == after.start
        assert before.version != after.version


def test_a_mark_beyond_the_tokens_is_not_recorded() -> None:
    completion = Completion(make_task(LengthBudget(max_tokens=9)), 0)
    completion.append([1, 2], [-1.0, -1.0], [VersionSpan(V7, 0, 1), VersionSpan(V8, 1, 2)])
    completion.mark_rebuild(2, 0)
    completion.mark_rebuild(1, 3)
    assert completion.rollout().kv_marks == (KvMark(1, 3, V8),)
