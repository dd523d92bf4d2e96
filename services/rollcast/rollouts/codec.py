"""Records of wire 1 as protobuf, and back. Input is hostile: sizes are bounded and lengths have to agree.

Token arrays travel as raw little-endian bytes, 4 for an id and 4 for a log-probability; a router's choice takes one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

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
    RoutedExperts,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.rollouts.validation import MAX_CHOICES, check_group, check_task
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion

MAX_MESSAGE_BYTES = 256 << 20
"""A group of 64 rollouts of 256k tokens; anything larger is damage or malice."""

_PURPOSES = {Purpose.TRAIN: pb.PURPOSE_TRAIN, Purpose.EVAL: pb.PURPOSE_EVAL}
_STATUSES = {
    GradingStatus.UNGRADED: pb.GRADING_STATUS_UNSPECIFIED,
    GradingStatus.OK: pb.GRADING_STATUS_OK,
    GradingStatus.WRONG: pb.GRADING_STATUS_WRONG,
    GradingStatus.TIMEOUT: pb.GRADING_STATUS_TIMEOUT,
    GradingStatus.ERROR: pb.GRADING_STATUS_ERROR,
}
_STOP_REASONS = {
    StopReason.RUNNING: pb.STOP_REASON_UNSPECIFIED,
    StopReason.END: pb.STOP_REASON_END,
    StopReason.LENGTH: pb.STOP_REASON_LENGTH,
}
_LEG_KINDS = {
    LegKind.THINKING: pb.LEG_KIND_THINKING,
    LegKind.PHRASE: pb.LEG_KIND_PHRASE,
    LegKind.ANSWER: pb.LEG_KIND_ANSWER,
}
_Word = TypeVar("_Word", Purpose, GradingStatus, StopReason, LegKind)
_Proto = TypeVar("_Proto", bound=Message)
OnUnknown = Callable[[int], None]
"""Called with the number of unknown fields of a message that has some: a newer program wrote it."""


def encode_task(task: PromptTask) -> bytes:
    """Raises CodecError if the task contradicts itself."""
    check_task(task)
    message = pb.PromptTask(
        sequence=task.sequence,
        attempt=task.attempt,
        incarnation=task.incarnation,
        purpose=_PURPOSES[task.purpose],
        dataset=task.dataset,
        prompt_id=task.prompt_id,
        prompt_token_ids=_int_bytes(task.prompt_token_ids),
        num_rollouts=task.num_rollouts,
        sampling=_sampling_to_proto(task.sampling),
        length_control=_length_to_proto(task.length),
        verifier=task.verifier,
        reference=task.reference.encode(),
        eval_step=task.eval_step,
        rollouts=map(_rollout_to_proto, task.rollouts),
        first_version=task.first_version.to_proto() if task.first_version else None,
        hand_backs=task.hand_backs,
    )
    return message.SerializeToString()


def decode_task(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> PromptTask:
    """Inverse of `encode_task`. Raises CodecError."""
    message = _parse(pb.PromptTask(), payload, on_unknown)
    task = PromptTask(
        sequence=message.sequence,
        incarnation=message.incarnation,
        purpose=_word(_PURPOSES, message.purpose, "purpose"),
        dataset=message.dataset,
        prompt_id=message.prompt_id,
        prompt_token_ids=_ints(message.prompt_token_ids),
        num_rollouts=message.num_rollouts,
        sampling=_sampling(message.sampling),
        length=_length(message.length_control),
        verifier=message.verifier,
        reference=_text(message.reference),
        eval_step=message.eval_step,
        attempt=message.attempt,
        hand_backs=message.hand_backs,
        first_version=PolicyVersion.from_proto(message.first_version) if message.HasField("first_version") else None,
        rollouts=[_rollout(item) for item in message.rollouts],
    )
    check_task(task)
    return task


def encode_group(group: RolloutGroup) -> bytes:
    """Raises CodecError if the group contradicts itself."""
    check_group(group)
    message = pb.RolloutGroup(
        sequence=group.sequence,
        attempt=group.attempt,
        incarnation=group.incarnation,
        purpose=_PURPOSES[group.purpose],
        dataset=group.dataset,
        prompt_id=group.prompt_id,
        prompt_token_ids=_int_bytes(group.prompt_token_ids),
        num_rollouts=len(group.rollouts),
        sampling=_sampling_to_proto(group.sampling),
        length_control=_length_to_proto(group.length),
        rollouts=map(_rollout_to_proto, group.rollouts),
        first_version=group.first_version.to_proto(),
        generator=group.generator,
        eval_step=group.eval_step,
        started_at=group.started_at,
        finished_at=group.finished_at,
        hand_backs=group.hand_backs,
    )
    return message.SerializeToString()


def decode_group(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> RolloutGroup:
    """Inverse of `encode_group`. Raises CodecError."""
    message = _parse(pb.RolloutGroup(), payload, on_unknown)
    if message.num_rollouts != len(message.rollouts):
        raise CodecError(f"num_rollouts = {message.num_rollouts}, but the group holds {len(message.rollouts)} rollouts")
    group = RolloutGroup(
        sequence=message.sequence,
        attempt=message.attempt,
        incarnation=message.incarnation,
        purpose=_word(_PURPOSES, message.purpose, "purpose"),
        dataset=message.dataset,
        prompt_id=message.prompt_id,
        prompt_token_ids=_ints(message.prompt_token_ids),
        sampling=_sampling(message.sampling),
        length=_length(message.length_control),
        rollouts=[_rollout(item) for item in message.rollouts],
        first_version=PolicyVersion.from_proto(message.first_version),
        generator=message.generator,
        eval_step=message.eval_step,
        started_at=message.started_at,
        finished_at=message.finished_at,
        hand_backs=message.hand_backs,
    )
    check_group(group)
    return group


def _parse(message: _Proto, payload: bytes, on_unknown: OnUnknown) -> _Proto:
    if len(payload) > MAX_MESSAGE_BYTES:
        raise CodecError(f"message of {len(payload)} bytes, more than {MAX_MESSAGE_BYTES}")
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise CodecError("not a protobuf message of this kind") from error
    if unknown := _count_unknown(message):
        on_unknown(unknown)
    return message


def _count_unknown(message: Message) -> int:
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            count += sum(map(_count_unknown, value if field.is_repeated else [value]))
    return count


def _word(words: dict[_Word, Any], value: int, name: str) -> _Word:
    for word, number in words.items():
        if number == value:
            return word
    raise CodecError(f"{name} = {value} has no meaning here")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CodecError("the reference is not UTF-8 text") from error


def _int_bytes(values: NDArray[np.int32] | Sequence[int]) -> bytes:
    return np.asarray(values, dtype="<i4").tobytes()


def _array(raw: bytes, dtype: str) -> NDArray[Any]:
    if len(raw) % 4:
        raise CodecError(f"an array of {len(raw)} bytes does not hold whole 4-byte values")
    return np.frombuffer(raw, dtype=dtype)


def _ints(raw: bytes) -> NDArray[np.int32]:
    return _array(raw, "<i4").astype(np.int32, copy=False)


def _sampling_to_proto(sampling: Sampling) -> pb.SamplingParameters:
    return pb.SamplingParameters(
        temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k, seed=sampling.seed
    )


def _sampling(message: pb.SamplingParameters) -> Sampling:
    return Sampling(message.temperature, message.top_p, message.top_k, message.seed)


def _length_to_proto(length: LengthBudget) -> pb.LengthControl:
    return pb.LengthControl(
        max_tokens=length.max_tokens,
        interrupt_from=length.interrupt_from,
        interrupt_to=length.interrupt_to,
        answer_tokens=length.answer_tokens,
        phrase_token_ids=_int_bytes(length.phrase),
        end_of_thinking_token_ids=_int_bytes(length.end_of_thinking),
        seed=length.seed,
    )


def _length(message: pb.LengthControl) -> LengthBudget:
    return LengthBudget(
        max_tokens=message.max_tokens,
        interrupt_from=message.interrupt_from,
        interrupt_to=message.interrupt_to,
        answer_tokens=message.answer_tokens,
        phrase=tuple(_ints(message.phrase_token_ids).tolist()),
        end_of_thinking=tuple(_ints(message.end_of_thinking_token_ids).tolist()),
        seed=message.seed,
    )


def _rollout_to_proto(rollout: Rollout) -> pb.Rollout:
    return pb.Rollout(
        index=rollout.index,
        token_ids=_int_bytes(rollout.token_ids),
        logprobs=np.asarray(rollout.logprobs, dtype="<f4").tobytes(),
        version_spans=_spans_to_proto(rollout.version_spans),
        loss_mask_spans=[pb.TokenSpan(start=start, end=end) for start, end in rollout.loss_masked],
        legs=[pb.Leg(kind=_LEG_KINDS[leg.kind], start=leg.start, end=leg.end) for leg in rollout.legs],
        kv_marks=[
            pb.KvMark(position=mark.position, kept=mark.kept, version=mark.version.to_proto())
            for mark in rollout.kv_marks
        ],
        partial=rollout.partial,
        stop_reason=_STOP_REASONS[rollout.stop_reason],
        reward=rollout.reward,
        grading_status=_STATUSES[rollout.grading_status],
        grading_seconds=rollout.grading_seconds,
        interrupted=rollout.interrupted,
        preemptions=rollout.preemptions,
        routed_experts=_experts_to_proto(rollout.routed_experts),
    )


def _experts_to_proto(experts: RoutedExperts | None) -> pb.RoutedExperts | None:
    if experts is None:
        return None
    _, layers, choices = experts.shape
    return pb.RoutedExperts(experts=experts.tobytes(), layers=layers, choices=choices)


def _experts(message: pb.RoutedExperts) -> RoutedExperts:
    layers = message.layers
    choices = message.choices
    if not 0 < layers * choices <= MAX_CHOICES or len(message.experts) % (layers * choices):
        raise CodecError(f"{len(message.experts)} experts are not {layers} layers x {choices} choices of whole tokens")
    return np.frombuffer(message.experts, np.uint8).reshape(-1, layers, choices)


def _spans_to_proto(spans: Iterable[VersionSpan]) -> list[pb.VersionSpan]:
    return [pb.VersionSpan(version=span.version.to_proto(), start=span.start, end=span.end) for span in spans]


def _rollout(message: pb.Rollout) -> Rollout:
    return Rollout(
        index=message.index,
        token_ids=_ints(message.token_ids),
        logprobs=_array(message.logprobs, "<f4").astype(np.float32, copy=False),
        version_spans=tuple(
            VersionSpan(PolicyVersion.from_proto(span.version), span.start, span.end) for span in message.version_spans
        ),
        loss_masked=tuple((span.start, span.end) for span in message.loss_mask_spans),
        legs=tuple(Leg(_word(_LEG_KINDS, leg.kind, "leg.kind"), leg.start, leg.end) for leg in message.legs),
        kv_marks=tuple(
            KvMark(mark.position, mark.kept, PolicyVersion.from_proto(mark.version)) for mark in message.kv_marks
        ),
        partial=message.partial,
        stop_reason=_word(_STOP_REASONS, message.stop_reason, "stop_reason"),
        reward=message.reward,
        grading_status=_word(_STATUSES, message.grading_status, "grading_status"),
        grading_seconds=message.grading_seconds,
        interrupted=message.interrupted,
        preemptions=message.preemptions,
        routed_experts=_experts(message.routed_experts) if message.HasField("routed_experts") else None,
    )
