"""Records of wire 1 as protobuf, and back. Input is hostile: sizes are bounded and lengths have to agree.

Token arrays travel as raw little-endian bytes, 4 for an id and 4 for a log-probability; a router's choice takes one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
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
_SAME = ("sequence", "attempt", "incarnation", "dataset", "prompt_id", "eval_step", "hand_backs")
"""Fields that tasks and groups have in common and that travel as they are."""
_Word = TypeVar("_Word", Purpose, GradingStatus, StopReason, LegKind)
_Proto = TypeVar("_Proto", bound=Message)
OnUnknown = Callable[[int], None]
"""Called with the number of unknown fields of a message that has some: a newer program wrote it."""


def encode_task(task: PromptTask) -> bytes:
    """Raises CodecError if the task contradicts itself."""
    check_task(task)
    message = pb.PromptTask(
        **_shared_to_proto(task),
        num_rollouts=task.num_rollouts,
        verifier=task.verifier,
        reference=task.reference.encode(),
        first_version=task.first_version.to_proto() if task.first_version else None,
    )
    return message.SerializeToString()


def decode_task(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> PromptTask:
    """Inverse of `encode_task`. Raises CodecError."""
    message = _parse(pb.PromptTask(), payload, on_unknown)
    task = PromptTask(
        **_shared(message),
        num_rollouts=message.num_rollouts,
        verifier=message.verifier,
        reference=_text(message.reference),
        first_version=PolicyVersion.from_proto(message.first_version) if message.HasField("first_version") else None,
    )
    check_task(task)
    return task


def encode_group(group: RolloutGroup) -> bytes:
    """Raises CodecError if the group contradicts itself."""
    check_group(group)
    message = pb.RolloutGroup(
        **_shared_to_proto(group),
        num_rollouts=len(group.rollouts),
        first_version=group.first_version.to_proto(),
        generator=group.generator,
        started_at=group.started_at,
        finished_at=group.finished_at,
    )
    return message.SerializeToString()


def decode_group(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> RolloutGroup:
    """Inverse of `encode_group`. Raises CodecError."""
    message = _parse(pb.RolloutGroup(), payload, on_unknown)
    if message.num_rollouts != len(message.rollouts):
        raise CodecError(f"num_rollouts = {message.num_rollouts}, but the group holds {len(message.rollouts)} rollouts")
    group = RolloutGroup(
        **_shared(message),
        first_version=PolicyVersion.from_proto(message.first_version),
        generator=message.generator,
        started_at=message.started_at,
        finished_at=message.finished_at,
    )
    check_group(group)
    return group


def _shared_to_proto(item: PromptTask | RolloutGroup) -> dict[str, Any]:
    """Fields that a task and its group have in common."""
    return {name: getattr(item, name) for name in _SAME} | {
        "purpose": _PURPOSES[item.purpose],
        "prompt_token_ids": _int_bytes(item.prompt_token_ids),
        "sampling": pb.SamplingParameters(**asdict(item.sampling)),
        "length_control": _length_to_proto(item.length),
        "rollouts": map(_rollout_to_proto, item.rollouts),
    }


def _shared(message: pb.PromptTask | pb.RolloutGroup) -> dict[str, Any]:
    sampling = message.sampling
    return {name: getattr(message, name) for name in _SAME} | {
        "purpose": _word(_PURPOSES, message.purpose, "purpose"),
        "prompt_token_ids": _ints(message.prompt_token_ids),
        "sampling": Sampling(sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed),
        "length": _length(message.length_control),
        "rollouts": [_rollout(item) for item in message.rollouts],
    }


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
        version_spans=[
            pb.VersionSpan(version=span.version.to_proto(), start=span.start, end=span.end)
            for span in rollout.version_spans
        ],
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
