"""The codec against records of every shape, and against bytes of every kind."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import (
    GradingStatus,
    KvMark,
    Leg,
    LegKind,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import VERSION, make_rollout, make_task

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A slow machine fails nothing."""
uint32 = st.integers(0, 2**32 - 1)
token_id = st.integers(0, 2**31 - 1)
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
versions = st.builds(PolicyVersion, uint32, uint32)
texts = st.text(max_size=20)
sampled_kinds = st.sampled_from([kind for kind in LegKind if kind is not LegKind.GIVEN])


@st.composite
def ranges(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Ranges of [0, length] that do not overlap, in order."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=6)))
    return list(zip(cuts[::2], cuts[1::2], strict=False))


@st.composite
def rollouts(draw: st.DrawFn, index: int, *, prompt: int, partial: bool = False) -> Rollout:
    length = draw(st.integers(0, 12))
    shape = (prompt + length - 1, draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    experts = np.random.default_rng(draw(uint32)).integers(
        0, 256, np.maximum(shape, 0), dtype=np.uint8
    )
    cuts = sorted(draw(st.sets(st.integers(1, length - 1), max_size=3))) if length > 1 else []
    edges = [0, *cuts, length] if length else []
    return Rollout(
        index=index,
        token_ids=np.array(
            draw(st.lists(token_id, min_size=length, max_size=length)), dtype=np.int32
        ),
        logprobs=np.array(
            draw(st.lists(float32, min_size=length, max_size=length)), dtype=np.float32
        ),
        version_spans=tuple(
            VersionSpan(draw(versions), start, end) for start, end in pairwise(edges)
        ),
        loss_masked=tuple(draw(ranges(length))),
        legs=tuple(Leg(draw(sampled_kinds), start, end) for start, end in draw(ranges(length))),
        kv_marks=tuple(
            draw(st.lists(st.builds(KvMark, st.integers(0, length), uint32, versions), max_size=2))
        ),
        partial=partial,
        stop_reason=StopReason.RUNNING
        if partial
        else draw(st.sampled_from([StopReason.END, StopReason.LENGTH])),
        reward=draw(float32),
        grading_status=draw(st.sampled_from(GradingStatus)),
        grading_seconds=draw(float32),
        interrupted=draw(st.booleans()),
        preemptions=draw(uint32),
        routed_experts=experts if shape[0] >= 0 and draw(st.booleans()) else None,
    )


samplings = st.builds(Sampling, float32, float32, st.integers(-(2**31), 2**31 - 1), uint32)
token_tuples = st.lists(token_id, max_size=4).map(tuple)
budgets = st.builds(
    LengthBudget, uint32, uint32, uint32, uint32, token_tuples, token_tuples, uint32
)
prompts = st.lists(token_id, max_size=8).map(lambda ids: np.array(ids, dtype=np.int32))


@st.composite
def tasks(draw: st.DrawFn) -> PromptTask:
    num_rollouts = draw(st.integers(1, 4))
    indices = draw(st.sets(st.integers(0, num_rollouts - 1)))
    prompt = draw(prompts)
    return PromptTask(
        sequence=draw(st.integers(0, 2**64 - 1)),
        incarnation=draw(uint32),
        purpose=draw(st.sampled_from(Purpose)),
        dataset=draw(texts),
        prompt_id=draw(texts),
        prompt_token_ids=prompt,
        num_rollouts=num_rollouts,
        sampling=draw(samplings),
        length=draw(budgets),
        verifier=draw(texts),
        reference=draw(texts),
        eval_step=draw(uint32),
        attempt=draw(uint32),
        hand_backs=draw(uint32),
        first_version=draw(versions),
        rollouts=[
            draw(rollouts(i, prompt=len(prompt), partial=draw(st.booleans())))
            for i in sorted(indices)
        ],
    )


@st.composite
def groups(draw: st.DrawFn) -> RolloutGroup:
    prompt = draw(prompts)
    members = [
        draw(rollouts(index, prompt=len(prompt))) for index in range(draw(st.integers(1, 4)))
    ]
    oldest = [rollout.oldest_version for rollout in members if rollout.oldest_version is not None]
    return RolloutGroup(
        sequence=draw(st.integers(0, 2**64 - 1)),
        attempt=draw(uint32),
        incarnation=draw(uint32),
        purpose=draw(st.sampled_from(Purpose)),
        dataset=draw(texts),
        prompt_id=draw(texts),
        prompt_token_ids=prompt,
        sampling=draw(samplings),
        length=draw(budgets),
        rollouts=members,
        first_version=min(oldest) if oldest else draw(versions),
        generator=draw(texts),
        eval_step=draw(uint32),
        started_at=draw(st.floats(allow_nan=False, allow_infinity=False)),
        finished_at=draw(st.floats(allow_nan=False, allow_infinity=False)),
        hand_backs=draw(uint32),
    )


def assert_equal(left: Any, right: Any) -> None:
    """Field by field; arrays by value and type."""
    for item in fields(left):
        one, other = getattr(left, item.name), getattr(right, item.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        elif item.name == "rollouts":
            assert len(one) == len(other)
            for pair in zip(one, other, strict=True):
                assert_equal(*pair)
        else:
            assert one == other, item.name


@given(tasks())
@patient
def test_a_task_survives_the_wire(task: PromptTask) -> None:
    assert_equal(decode_task(encode_task(task)), task)


@given(groups())
@patient
def test_a_group_survives_the_wire(group: RolloutGroup) -> None:
    assert_equal(decode_group(encode_group(group)), group)


@given(st.binary(max_size=300))
@settings(patient, max_examples=300)
def test_arbitrary_bytes_decode_or_raise_the_codec_error(payload: bytes) -> None:
    for decode in (decode_task, decode_group):
        with suppress(CodecError):
            decode(payload)


@given(groups(), st.data())
@patient
def test_a_damaged_group_decodes_to_a_sound_group_or_raises(
    group: RolloutGroup, data: st.DataObject
) -> None:
    payload = bytearray(encode_group(group))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(payload) - 1))
        payload[position] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))]
    try:
        decoded = decode_group(bytes(payload))
    except CodecError:
        return
    for rollout in decoded.rollouts:
        assert len(rollout.logprobs) == rollout.num_tokens
        assert sum(span.end - span.start for span in rollout.version_spans) == rollout.num_tokens
        assert np.isfinite(rollout.logprobs).all()


def group_message() -> pb.RolloutGroup:
    message = pb.RolloutGroup(sequence=1, purpose=pb.PURPOSE_TRAIN, num_rollouts=1)
    message.first_version.CopyFrom(VERSION.to_proto())
    rollout = message.rollouts.add(stop_reason=pb.STOP_REASON_END)
    rollout.token_ids = np.arange(3, dtype="<i4").tobytes()
    rollout.logprobs = np.zeros(3, dtype="<f4").tobytes()
    rollout.version_spans.add(version=VERSION.to_proto(), start=0, end=3)
    return message


def damage_tokens(message: pb.RolloutGroup) -> None:
    message.rollouts[0].token_ids += b"x"


def shorten_logprobs(message: pb.RolloutGroup) -> None:
    message.rollouts[0].logprobs = message.rollouts[0].logprobs[:8]


def poison_logprobs(message: pb.RolloutGroup) -> None:
    message.rollouts[0].logprobs = np.array([0, np.nan, 0], dtype="<f4").tobytes()


def negate_tokens(message: pb.RolloutGroup) -> None:
    message.rollouts[0].token_ids = np.array([0, -1, 0], dtype="<i4").tobytes()


def leave_a_gap(message: pb.RolloutGroup) -> None:
    message.rollouts[0].version_spans[0].start = 1


def overshoot(message: pb.RolloutGroup) -> None:
    message.rollouts[0].version_spans[0].end = 4


def mask_beyond_the_end(message: pb.RolloutGroup) -> None:
    message.rollouts[0].loss_mask_spans.add(start=2, end=9)


def claim_a_later_first_version(message: pb.RolloutGroup) -> None:
    message.first_version.step += 1


def leave_unfinished(message: pb.RolloutGroup) -> None:
    message.rollouts[0].stop_reason = pb.STOP_REASON_UNSPECIFIED


def miscount(message: pb.RolloutGroup) -> None:
    message.num_rollouts = 2


def repeat_an_index(message: pb.RolloutGroup) -> None:
    message.num_rollouts = 2
    message.rollouts.add().CopyFrom(message.rollouts[0])


def lose_the_purpose(message: pb.RolloutGroup) -> None:
    message.purpose = pb.PURPOSE_UNSPECIFIED


def forget_an_expert(message: pb.RolloutGroup) -> None:
    message.rollouts[0].routed_experts.MergeFrom(
        pb.RoutedExperts(experts=bytes(7), layers=2, choices=2)
    )


def route_too_few_tokens(message: pb.RolloutGroup) -> None:
    message.rollouts[0].routed_experts.MergeFrom(
        pb.RoutedExperts(experts=bytes(4), layers=2, choices=2)
    )


def route_through_no_layer(message: pb.RolloutGroup) -> None:
    message.rollouts[0].routed_experts.MergeFrom(
        pb.RoutedExperts(experts=bytes(4), layers=0, choices=2)
    )


def route_through_endless_layers(message: pb.RolloutGroup) -> None:
    message.rollouts[0].routed_experts.MergeFrom(pb.RoutedExperts(layers=2**31, choices=2**31))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (forget_an_expert, "7 experts are not 2 layers x 2 choices of whole tokens"),
        (route_too_few_tokens, "experts of 1 tokens, and 2 went through the model"),
        (route_through_no_layer, "4 experts are not 0 layers x 2 choices"),
        (route_through_endless_layers, "0 experts are not 2147483648 layers x 2147483648 choices"),
        (damage_tokens, "whole 4-byte values"),
        (shorten_logprobs, "3 tokens, 2 log-probabilities"),
        (poison_logprobs, "log-probability is not finite"),
        (negate_tokens, "token id is negative"),
        (leave_a_gap, "do not follow one another"),
        (overshoot, "cover 4 of 3 tokens"),
        (mask_beyond_the_end, "loss mask"),
        (claim_a_later_first_version, "older than the group's first version"),
        (leave_unfinished, "has not ended"),
        (miscount, "holds 1 rollouts"),
        (repeat_an_index, "indices are not 0..G-1"),
        (lose_the_purpose, "purpose = 0"),
    ],
)
def test_a_group_that_contradicts_itself_is_refused(damage: Any, sentence: str) -> None:
    message = group_message()
    decode_group(message.SerializeToString())
    damage(message)
    with pytest.raises(CodecError, match=sentence):
        decode_group(message.SerializeToString())


def test_fields_of_a_newer_program_are_counted_and_not_fatal() -> None:
    payload = (
        encode_task(make_task(3)) + bytes([0xA2, 0x06, 0x03]) + b"new" + bytes([0xA8, 0x06, 0x01])
    )
    counts: list[int] = []
    assert decode_task(payload, counts.append).sequence == 3
    assert counts == [2]


def test_an_oversized_message_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollcast.rollouts.codec.MAX_MESSAGE_BYTES", 10)
    with pytest.raises(CodecError, match="more than 10"):
        decode_task(encode_task(make_task(1)))


def test_a_token_costs_eight_bytes_and_a_little() -> None:
    task = make_task(
        1, rollouts=[make_rollout(0, 1000), make_rollout(1, 1000)], first_version=VERSION
    )
    assert len(encode_task(task)) - len(encode_task(make_task(1))) <= 2 * (8 * 1000 + 40)


def test_a_choice_costs_one_byte_and_none_where_nothing_is_recorded() -> None:
    """48 layers of 8 choices, as Qwen3-30B-A3B has them."""
    task = make_task(1)
    tokens = len(task.prompt_token_ids) + 1000 - 1
    plain, routed = make_rollout(0, 1000), make_rollout(0, 1000)
    routed.routed_experts = np.zeros((tokens, 48, 8), dtype=np.uint8)
    sizes = [
        len(encode_task(make_task(1, rollouts=[one], first_version=VERSION)))
        for one in (plain, routed)
    ]
    assert 0 < sizes[1] - sizes[0] - tokens * 48 * 8 <= 20
    message = pb.PromptTask.FromString(
        encode_task(make_task(1, rollouts=[plain], first_version=VERSION))
    )
    assert not message.rollouts[0].HasField("routed_experts"), (
        "an older program reads it as it always did"
    )
