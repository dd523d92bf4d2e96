"""Tasks and groups of wire 1 as protobuf, and back.

Input is hostile: sizes are bounded and lengths have to agree.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import (
    EpisodeTask,
    LengthBudget,
    PromptTask,
    Purpose,
    RolloutGroup,
    Sampling,
)
from rollcast.rollouts.rollout_codec import (
    int_bytes,
    ints,
    numbers,
    rollout_from_proto,
    rollout_to_proto,
    same_fields,
    word,
)
from rollcast.rollouts.validation import check_group, check_task
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion

MAX_MESSAGE_BYTES = 256 << 20
"""A group of 64 rollouts of 256k tokens; anything larger is damage or malice."""

_PURPOSES = numbers(Purpose, pb.Purpose)
_same = same_fields(
    "sequence", "attempt", "incarnation", "dataset", "prompt_id", "eval_step", "hand_backs"
)
_same_in_sampling = same_fields(*(item.name for item in fields(Sampling)))
_same_in_group = same_fields("generator", "started_at", "finished_at")
_same_in_length = same_fields(
    "max_tokens", "interrupt_from", "interrupt_to", "answer_tokens", "seed"
)
_same_in_episode = same_fields("environment", "max_turns", "max_seconds")
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
        episode=None if task.episode is None else _episode_to_proto(task.episode),
    )
    return message.SerializeToString()


def decode_task(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> PromptTask:
    """Inverse of `encode_task`. Raises CodecError."""
    message = _parse(pb.PromptTask(), payload, on_unknown)
    task = PromptTask(
        **_shared(message),
        num_rollouts=message.num_rollouts,
        verifier=message.verifier,
        reference=_text(message.reference, "reference"),
        first_version=PolicyVersion.from_proto(message.first_version)
        if message.HasField("first_version")
        else None,
        episode=_episode(message.episode) if message.HasField("episode") else None,
    )
    check_task(task)
    return task


def encode_group(group: RolloutGroup) -> bytes:
    """Raises CodecError if the group contradicts itself."""
    check_group(group)
    message = pb.RolloutGroup(
        **_shared_to_proto(group),
        num_rollouts=len(group.rollouts),
        **_same_in_group(group),
        first_version=group.first_version.to_proto(),
    )
    return message.SerializeToString()


def decode_group(payload: bytes, on_unknown: OnUnknown = lambda _: None) -> RolloutGroup:
    """Inverse of `encode_group`. Raises CodecError."""
    message = _parse(pb.RolloutGroup(), payload, on_unknown)
    if message.num_rollouts != len(message.rollouts):
        raise CodecError(
            f"num_rollouts = {message.num_rollouts}, but the group holds {len(message.rollouts)} "
            "rollouts"
        )
    group = RolloutGroup(
        **_shared(message),
        **_same_in_group(message),
        first_version=PolicyVersion.from_proto(message.first_version),
    )
    check_group(group)
    return group


def _shared_to_proto(item: PromptTask | RolloutGroup) -> dict[str, Any]:
    """Fields that a task and its group have in common."""
    return _same(item) | {
        "purpose": _PURPOSES[item.purpose],
        "prompt_token_ids": int_bytes(item.prompt_token_ids),
        "sampling": pb.SamplingParameters(**_same_in_sampling(item.sampling)),
        "length_control": _length_to_proto(item.length),
        "rollouts": map(rollout_to_proto, item.rollouts),
    }


def _shared(message: pb.PromptTask | pb.RolloutGroup) -> dict[str, Any]:
    return _same(message) | {
        "purpose": word(_PURPOSES, message.purpose, "purpose"),
        "prompt_token_ids": ints(message.prompt_token_ids),
        "sampling": Sampling(**_same_in_sampling(message.sampling)),
        "length": _length(message.length_control),
        "rollouts": [rollout_from_proto(item) for item in message.rollouts],
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


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"the {name} is not UTF-8 text") from error


def _length_to_proto(length: LengthBudget) -> pb.LengthControl:
    return pb.LengthControl(
        **_same_in_length(length),
        phrase_token_ids=int_bytes(length.phrase),
        end_of_thinking_token_ids=int_bytes(length.end_of_thinking),
    )


def _length(message: pb.LengthControl) -> LengthBudget:
    return LengthBudget(
        **_same_in_length(message),
        phrase=tuple(ints(message.phrase_token_ids).tolist()),
        end_of_thinking=tuple(ints(message.end_of_thinking_token_ids).tolist()),
    )


def _episode_to_proto(episode: EpisodeTask) -> pb.EpisodeTask:
    return pb.EpisodeTask(
        **_same_in_episode(episode),
        messages=episode.messages.encode(),
        answer=episode.answer.encode(),
    )


def _episode(message: pb.EpisodeTask) -> EpisodeTask:
    return EpisodeTask(
        **_same_in_episode(message),
        messages=_text(message.messages, "chat"),
        answer=_text(message.answer, "answer"),
    )
