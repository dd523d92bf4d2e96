"""Legs, spans and marks of a completion, checked against what the records promise."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from rollcast.generator.completion import Completion
from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.codec import decode_task, encode_task
from rollcast.rollouts.records import (
    KvMark,
    Leg,
    LegKind,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RoutedExperts,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.wire.version import PolicyVersion

V7, V8 = PolicyVersion(1, 7), PolicyVersion(1, 8)
PHRASE = (90, 91)
MARKER = (50, 51)


def decode(token_ids: list[int]) -> str:
    """One character each."""
    return "".join(map(chr, token_ids))


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
    task = make_task(
        LengthBudget(
            max_tokens=100, interrupt_from=3, interrupt_to=3, answer_tokens=9, phrase=(90,)
        )
    )
    completion = Completion(task, 0, decode)
    completion.append([1, 2, 3], [-1.0, -2.0, -3.0], [VersionSpan(V7, 0, 3)])
    assert completion.next_leg() == (9, True)
    completion.force_phrase(V7)
    completion.append([4, 5], [-4.0, -5.0], [VersionSpan(V8, 0, 2)])
    completion.mark_rebuild(4, 32)
    rollout = completion.rollout()
    assert rollout.token_ids.tolist() == [1, 2, 3, 90, 4, 5]
    assert rollout.logprobs.tolist() == [-1, -2, -3, 0, -4, -5]
    assert rollout.legs == (
        Leg(LegKind.THINKING, 0, 3),
        Leg(LegKind.INTERRUPTION_PHRASE, 3, 4),
        Leg(LegKind.ANSWER, 4, 6),
    )
    assert rollout.loss_masked == ((3, 4),)
    assert rollout.version_spans == (VersionSpan(V7, 0, 4), VersionSpan(V8, 4, 6))
    assert rollout.kv_marks == (KvMark(4, 32, V8),)
    assert rollout.partial
    assert rollout.interrupted


def test_thinking_that_ended_in_time_goes_on_without_the_phrase() -> None:
    task = interrupted_task()
    cut = cut_of(task, 0)
    completion = Completion(task, 0, decode)
    tokens = [1] * (cut - 3) + list(MARKER) + [1]
    completion.append(tokens, [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    assert completion.next_leg() == (40 - cut, False)


def test_a_marker_that_straddles_the_cut_came_too_late() -> None:
    task = interrupted_task()
    cut = cut_of(task, 0)
    completion = Completion(task, 0, decode)
    completion.append([1] * (cut - 1) + [MARKER[0]], [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    leg = completion.next_leg()
    assert leg is not None
    assert leg.force_phrase


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Byte-level pairs, in which `>` and the line breaks behind it are one token, as real
    vocabularies have it.
    """
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(
        ["a>\n\n"] * 50 + ["</think>"] * 20 + [" </ think", "the ink", ">é"] * 5, trainer
    )
    return made


THINK_END = "</think>"


def thought(tokenizer: Tokenizer, token_ids: list[int], cut: int) -> Completion:
    """A completion of these tokens, whose thinking is cut at `cut`."""
    marker = tuple(tokenizer.encode(THINK_END).ids)
    length = LengthBudget(
        999,
        interrupt_from=cut,
        interrupt_to=cut,
        answer_tokens=8,
        phrase=(1,),
        end_of_thinking=marker,
    )
    completion = Completion(make_task(length), 0, tokenizer.decode)
    completion.append(token_ids, [-1.0] * len(token_ids), [VersionSpan(V7, 0, len(token_ids))])
    return completion


def test_a_marker_in_other_tokens_than_its_own_ends_thinking(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode("a</think>\n\n4").ids
    marker = tokenizer.encode(THINK_END).ids
    starts = range(len(token_ids))
    assert all(token_ids[start : start + len(marker)] != marker for start in starts), (
        "the line breaks belong to `>`"
    )
    assert thought(tokenizer, token_ids, len(token_ids)).next_leg() == (999 - len(token_ids), False)


PIECES = st.sampled_from([THINK_END, "</thi", "nk>", "\n\n", "<", "/", ">", "é", " ", "a", "think"])


@given(data=st.data(), pieces=st.lists(PIECES, min_size=1, max_size=12))
def test_any_split_into_tokens_is_read_as_its_characters_are(
    tokenizer: Tokenizer, data: st.DataObject, pieces: list[str]
) -> None:
    """Against the characters: thinking ended where a marker's last one belongs to a token before
    the cut.
    """
    text = "".join(pieces)
    seams = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=8))})
    token_ids: list[int] = []
    token_of: list[int] = []  # of each character, the first token that holds it
    for start, end in itertools.pairwise(seams):
        encoded = tokenizer.encode(text[start:end])
        stops = [stop for _, stop in encoded.offsets]
        token_of += [
            len(token_ids) + next(i for i, stop in enumerate(stops) if stop > at)
            for at in range(end - start)
        ]
        token_ids += encoded.ids
    cut = data.draw(st.integers(1, len(token_ids)))
    ends = [at + len(THINK_END) - 1 for at in range(len(text)) if text.startswith(THINK_END, at)]
    leg = thought(tokenizer, token_ids, cut).next_leg()
    assert leg is not None
    assert leg.force_phrase is not any(token_of[end] < cut for end in ends)


def test_without_room_for_an_answer_the_rollout_is_truncated() -> None:
    task = interrupted_task(max_tokens=12)
    completion = Completion(task, 0, decode)
    cut = cut_of(task, 0)
    completion.append([1] * cut, [-1.0] * cut, [VersionSpan(V7, 0, cut)])
    assert completion.next_leg() is None


@given(data=st.data(), index=st.integers(0, 5), stops=st.integers(0, 1000))
def test_any_split_into_partial_rollouts_keeps_the_budgets(
    data: st.DataObject, index: int, stops: int
) -> None:
    """Sampled in random pieces, each through the record as a hand-back does it: the legs come out
    the same.
    """
    task = interrupted_task()
    completion = Completion(task, index, decode)
    whole = random.Random(stops)
    while (leg := completion.next_leg()) is not None:
        assert leg.max_tokens > 0
        if leg.force_phrase:
            completion.force_phrase(V7)
        num = data.draw(st.integers(0, leg.max_tokens))
        version = whole.choice([V7, V8])
        completion.append([1] * num, [-1.0] * num, [VersionSpan(version, 0, num)] if num else [])
        completion = Completion(task, index, decode, completion.rollout())
        if num == 0:
            num = leg.max_tokens if not leg.force_phrase else 1
            completion.append([1] * num, [-1.0] * num, [VersionSpan(V8, 0, num)])
    rollout = completion.rollout()
    cut = cut_of(task, index)
    assert [leg.kind for leg in rollout.legs] == [
        LegKind.THINKING,
        LegKind.INTERRUPTION_PHRASE,
        LegKind.ANSWER,
    ]
    assert [(leg.start, leg.end) for leg in rollout.legs] == [
        (0, cut),
        (cut, cut + 2),
        (cut + 2, cut + 10),
    ]
    assert rollout.version_spans[0].start == 0
    assert rollout.version_spans[-1].end == rollout.num_tokens == len(rollout.logprobs)
    for before, after in zip(rollout.version_spans, rollout.version_spans[1:], strict=False):
        assert before.end == after.start
        assert before.version != after.version


def test_a_mark_beyond_the_tokens_is_not_recorded() -> None:
    completion = Completion(make_task(LengthBudget(max_tokens=9)), 0, decode)
    completion.append([1, 2], [-1.0, -1.0], [VersionSpan(V7, 0, 1), VersionSpan(V8, 1, 2)])
    completion.mark_rebuild(2, 0)
    completion.mark_rebuild(1, 3)
    assert completion.rollout().kv_marks == (KvMark(1, 3, V8),)


def test_experts_are_those_that_each_token_was_first_computed_with() -> None:
    """Of a rollout of two legs, handed back between them: the next owner computes the first leg
    again, by itself.
    """
    task = make_task(
        LengthBudget(
            max_tokens=100, interrupt_from=3, interrupt_to=3, answer_tokens=9, phrase=(90,)
        )
    )
    first = Completion(task, 0, decode)
    first.append([1, 2, 3], [-1.0] * 3, [VersionSpan(V7, 0, 3)])
    first.record_experts(0, np.full((5 + 3 - 1, 2, 1), 7, dtype=np.uint8))
    first.force_phrase(V7)
    handed_back = first.rollout()
    assert handed_back.partial
    assert len(check_rollout_in_a_task(task, handed_back)) == 7
    later = Completion(task, 0, decode, handed_back)
    assert later.num_routed == 7, "what the engine need not tell again"
    later.append([4, 5], [-1.0] * 2, [VersionSpan(V8, 0, 2)])
    later.record_experts(7, np.full((5 + 6 - 1 - 7, 2, 1), 8, dtype=np.uint8))
    later.stop_reason = StopReason.END
    experts = check_rollout_in_a_task(task, later.rollout())
    assert experts[:, 0, 0].tolist() == [7] * 7 + [8] * 3


def test_experts_of_what_an_answers_leg_computes_again_are_those_that_it_saw() -> None:
    completion = Completion(make_task(LengthBudget(max_tokens=100)), 0, decode)
    completion.append([1, 2, 3], [-1.0] * 3, [VersionSpan(V7, 0, 3)])
    completion.record_experts(0, np.full((7, 2, 1), 7, dtype=np.uint8))
    completion.append([4, 5], [-1.0] * 2, [VersionSpan(V7, 0, 2)])
    completion.record_experts(2, np.full((7, 2, 1), 8, dtype=np.uint8))
    experts = completion.rollout().routed_experts
    assert experts is not None
    assert experts[:, 0, 0].tolist() == [7] * 2 + [8] * 7


def check_rollout_in_a_task(task: PromptTask, rollout: Rollout) -> RoutedExperts:
    """Over the wire, which holds the number of rows against the tokens."""
    sent = encode_task(dataclasses.replace(task, rollouts=[rollout], first_version=V7))
    experts = decode_task(sent).rollouts[0].routed_experts
    assert experts is not None
    return experts
