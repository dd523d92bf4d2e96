"""Rollouts and their episodes as protobuf, and back.

Token arrays travel as raw little-endian bytes, 4 for an id and 4 for a log-probability; a router's
choice takes one. A rollout without an episode has no byte of one.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    GradingStatus,
    KvMark,
    Leg,
    LegKind,
    Purpose,
    Rollout,
    RoutedExperts,
    StopReason,
    Turn,
    VersionSpan,
)
from rollcast.wire import rollout_pb2 as pb
from rollcast.wire.version import PolicyVersion

_Word = TypeVar("_Word", Purpose, GradingStatus, StopReason, LegKind, EpisodeEnd)


def numbers(words: type[_Word], proto: Any, unset: _Word | None = None) -> dict[_Word, Any]:
    """The number of each word in the enum of proto/ that has its values in capitals. `unset`: the
    word of 0.
    """
    prefix = proto.keys()[0].removesuffix("UNSPECIFIED")
    return {
        word: proto.Value(prefix + ("UNSPECIFIED" if word is unset else word.value.upper()))
        for word in words
    }


_STATUSES = numbers(GradingStatus, pb.GradingStatus, GradingStatus.UNGRADED)
_STOP_REASONS = numbers(StopReason, pb.StopReason, StopReason.RUNNING)
_LEG_KINDS = numbers(LegKind, pb.LegKind)
_EPISODE_ENDS = numbers(EpisodeEnd, pb.EpisodeEnd, EpisodeEnd.RUNNING)


def same_fields(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Copies the fields of these names, which travel as they are."""
    values = attrgetter(*names)
    return lambda item: dict(zip(names, values(item), strict=True))


_same_in_rollout = same_fields(
    "index", "partial", "reward", "grading_seconds", "interrupted", "preemptions"
)
_same_in_episode = same_fields(
    "environment", "reason", "environment_seconds", "sampling_seconds", "restarts"
)
_turn_values = attrgetter(*(item.name for item in fields(Turn)))


def word(words: dict[_Word, Any], value: int, name: str) -> _Word:
    """The word that `value` stands for. Raises CodecError."""
    for known_word, number in words.items():
        if number == value:
            return known_word
    raise CodecError(f"{name} = {value} has no meaning here")


def int_bytes(values: NDArray[np.int32] | Sequence[int]) -> bytes:
    return np.asarray(values, dtype="<i4").tobytes()


def ints(raw: bytes) -> NDArray[np.int32]:
    """Inverse of `int_bytes`. Raises CodecError."""
    return _array(raw, "<i4").astype(np.int32, copy=False)


def _array(raw: bytes, dtype: str) -> NDArray[Any]:
    if len(raw) % 4:
        raise CodecError(f"an array of {len(raw)} bytes does not hold whole 4-byte values")
    return np.frombuffer(raw, dtype=dtype)


def rollout_to_proto(rollout: Rollout) -> pb.Rollout:
    return pb.Rollout(
        **_sequence_to_proto(rollout),
        **_same_in_rollout(rollout),
        stop_reason=_STOP_REASONS[rollout.stop_reason],
        grading_status=_STATUSES[rollout.grading_status],
        episode=None if rollout.episode is None else _episode_to_proto(rollout.episode),
    )


def rollout_from_proto(message: pb.Rollout) -> Rollout:
    """Inverse of `rollout_to_proto`. Raises CodecError."""
    return Rollout(
        **_sequence(message),
        **_same_in_rollout(message),
        stop_reason=word(_STOP_REASONS, message.stop_reason, "stop_reason"),
        grading_status=word(_STATUSES, message.grading_status, "grading_status"),
        episode=_episode(message.episode) if message.HasField("episode") else None,
    )


def _sequence_to_proto(sequence: Rollout | Branch) -> dict[str, Any]:
    """Fields that a rollout and a branch of its episode have in common."""
    return {
        "token_ids": int_bytes(sequence.token_ids),
        "logprobs": np.asarray(sequence.logprobs, dtype="<f4").tobytes(),
        "version_spans": [
            pb.VersionSpan(version=span.version.to_proto(), start=span.start, end=span.end)
            for span in sequence.version_spans
        ],
        "loss_mask_spans": [
            pb.TokenSpan(start=start, end=end) for start, end in sequence.loss_masked
        ],
        "legs": [
            pb.Leg(kind=_LEG_KINDS[leg.kind], start=leg.start, end=leg.end) for leg in sequence.legs
        ],
        "kv_marks": [
            pb.KvMark(position=mark.position, kept=mark.num_kept, version=mark.version.to_proto())
            for mark in sequence.kv_marks
        ],
        "routed_experts": _experts_to_proto(sequence.routed_experts),
    }


def _sequence(message: pb.Rollout | pb.Branch) -> dict[str, Any]:
    return {
        "token_ids": ints(message.token_ids),
        "logprobs": _array(message.logprobs, "<f4").astype(np.float32, copy=False),
        "version_spans": tuple(
            VersionSpan(PolicyVersion.from_proto(span.version), span.start, span.end)
            for span in message.version_spans
        ),
        "loss_masked": tuple((span.start, span.end) for span in message.loss_mask_spans),
        "legs": tuple(
            Leg(word(_LEG_KINDS, leg.kind, "leg.kind"), leg.start, leg.end) for leg in message.legs
        ),
        "kv_marks": tuple(
            KvMark(mark.position, mark.kept, PolicyVersion.from_proto(mark.version))
            for mark in message.kv_marks
        ),
        "routed_experts": _experts(message.routed_experts)
        if message.HasField("routed_experts")
        else None,
    }


def _experts_to_proto(experts: RoutedExperts | None) -> pb.RoutedExperts | None:
    if experts is None:
        return None
    _, layers, choices = experts.shape
    return pb.RoutedExperts(experts=experts.tobytes(), layers=layers, choices=choices)


def _experts(message: pb.RoutedExperts) -> RoutedExperts:
    layers = message.layers
    choices = message.choices
    # 4_096: experts that one token is sent to, over all layers.
    if not 0 < layers * choices <= 4_096 or len(message.experts) % (layers * choices):
        raise CodecError(
            f"{len(message.experts)} experts are not {layers} layers x {choices} choices of whole "
            "tokens"
        )
    return np.frombuffer(message.experts, np.uint8).reshape(-1, layers, choices)


def _episode_to_proto(episode: Episode) -> pb.Episode:
    prompt = episode.prompt_token_ids
    return pb.Episode(
        **_same_in_episode(episode),
        prompt_token_ids=None if prompt is None else int_bytes(prompt),
        turns=[
            # One by one, because an episode may have thousands of them.
            pb.Turn(
                sequence=turn.sequence,
                start=turn.start,
                end=turn.end,
                reward=turn.reward,
                tool_calls=turn.tool_calls,
                malformed_calls=turn.malformed_calls,
                environment_seconds=turn.environment_seconds,
            )
            for turn in episode.turns
        ],
        branches=[
            pb.Branch(
                **_sequence_to_proto(branch), prompt_token_ids=int_bytes(branch.prompt_token_ids)
            )
            for branch in episode.branches
        ],
        end=_EPISODE_ENDS[episode.end],
        metrics=[
            pb.EnvironmentMetric(name=name, value=value) for name, value in episode.metrics.items()
        ],
    )


def _episode(message: pb.Episode) -> Episode:
    return Episode(
        **_same_in_episode(message),
        prompt_token_ids=ints(message.prompt_token_ids)
        if message.HasField("prompt_token_ids")
        else None,
        turns=tuple(Turn(*_turn_values(turn)) for turn in message.turns),
        branches=tuple(
            Branch(**_sequence(branch), prompt_token_ids=ints(branch.prompt_token_ids))
            for branch in message.branches
        ),
        end=word(_EPISODE_ENDS, message.end, "episode.end"),
        metrics={metric.name: metric.value for metric in message.metrics},
    )
