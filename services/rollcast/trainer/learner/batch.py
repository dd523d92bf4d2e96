"""Sequences of rollout groups, cut into micro-batches of bounded size for each rank, and their bytes.

A micro-batch is one forward and backward pass of one rank. FSDP's collectives run in lock-step, so every rank gets the
same number of micro-batches (empty ones at the end) and the i-th ones of all ranks are about equally long.

Bytes, little endian, no pickle:

    header      magic "RCB2", uint32 micro-batches, float64 denominator
    micro-batch uint32 sequences, then of each: uint32 P, uint32 L, float64 advantage, float64 weight, uint16 layers,
                uint16 choices (both 0: no experts)
    arrays      of each sequence in order: int32 prompt [P], int32 tokens [L], float32 log-probs [L], uint8 mask [L],
                uint8 experts [P + L - 1, layers, choices]
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.recipe.effective_batch import EffectiveBatch
from rollcast.rollouts.records import Logprobs, Rollout, RolloutGroup, RoutedExperts, TokenIds

MAGIC = b"RCB2"
HEADER = struct.Struct("<4sId")
COUNT = struct.Struct("<I")
SEQUENCE = struct.Struct("<IIddHH")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """One kept rollout: a prompt of P tokens and a completion of L tokens."""

    prompt_token_ids: TokenIds
    """[P] int32, P >= 1."""
    token_ids: TokenIds
    """[L] int32."""
    generator_logprobs: Logprobs
    """[L] float32."""
    loss_mask: NDArray[np.bool_]
    """[L] True for tokens that carry loss."""
    advantage: float
    weight: float
    """Weight of each loss token in the batch's objective."""
    routed_experts: RoutedExperts | None = None
    """[P + L - 1, layers, choices] uint8: what the generator's routers chose. None = not recorded."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.token_ids)

    @property
    def total_weight(self) -> float:
        return self.weight * int(self.loss_mask.sum())

    @property
    def routing(self) -> tuple[int, int]:
        """(layers, choices); 0 if no experts were recorded."""
        return (0, 0) if self.routed_experts is None else self.routed_experts.shape[1:]


class Routing(NamedTuple):
    """Shape of the expert choices that a router replay needs."""

    layers: int
    """Layers with a router."""
    experts: int
    """Experts of a layer."""
    choices: int
    """Experts of a token in a layer."""


MicroBatch = tuple[TrainingSequence, ...]


def loss_mask(rollout: Rollout) -> NDArray[np.bool_]:
    """Return [L], False on the forced tokens."""
    mask = np.ones(rollout.num_tokens, dtype=np.bool_)
    for start, end in rollout.loss_masked:
        mask[start:end] = False
    return mask


def training_sequences(groups: Sequence[RolloutGroup], effective: EffectiveBatch) -> list[TrainingSequence]:
    """Return the kept rollouts. `effective` has one entry per rollout: groups in order, rollouts in order."""
    rollouts = [(group, rollout) for group in groups for rollout in group.rollouts]
    assert len(rollouts) == len(effective.kept)
    return [
        TrainingSequence(
            prompt_token_ids=group.prompt_token_ids,
            token_ids=rollout.token_ids,
            generator_logprobs=rollout.logprobs,
            loss_mask=loss_mask(rollout),
            advantage=float(effective.advantages[index]),
            weight=float(effective.weights[index]),
            routed_experts=rollout.routed_experts,
        )
        for index, (group, rollout) in enumerate(rollouts)
        if effective.kept[index]
    ]


def denominator(sequences: Iterable[TrainingSequence]) -> float:
    """Return sum_t w_t over the whole batch: what the objective of all micro-batches and ranks is divided by."""
    return float(sum(sequence.total_weight for sequence in sequences))


def padded_tokens(micro_batch: MicroBatch) -> int:
    return len(micro_batch) * max((sequence.num_tokens for sequence in micro_batch), default=0)


def plan_micro_batches(
    sequences: Sequence[TrainingSequence], *, world_size: int, max_tokens: int
) -> list[list[MicroBatch]]:
    """Return the micro-batches of each rank [world_size], equally many for all.

    A micro-batch has at most `max_tokens` padded tokens, or is one longer sequence. Equally long sequences go together;
    the largest micro-batches are halved until their number is a multiple of `world_size`.
    """
    micro_batches: list[MicroBatch] = []
    current: list[TrainingSequence] = []
    for sequence in sorted(sequences, key=lambda s: s.num_tokens, reverse=True):
        if current and (len(current) + 1) * current[0].num_tokens > max_tokens:
            micro_batches.append(tuple(current))
            current = []
        current.append(sequence)
    if current:
        micro_batches.append(tuple(current))
    while len(micro_batches) % world_size:
        largest = max(
            range(len(micro_batches)), key=lambda i: (len(micro_batches[i]) > 1, padded_tokens(micro_batches[i]))
        )
        whole = micro_batches[largest]
        half = (len(whole) + 1) // 2
        micro_batches[largest : largest + 1] = [whole[:half], whole[half:]]
    micro_batches.sort(key=padded_tokens, reverse=True)
    # Deal them out row by row, every second row backwards: the ranks' sums stay close, too.
    ranks: list[list[MicroBatch]] = [[] for _ in range(world_size)]
    for row, start in enumerate(range(0, len(micro_batches), world_size)):
        order = range(world_size) if row % 2 == 0 else reversed(range(world_size))
        for rank, micro_batch in zip(order, micro_batches[start : start + world_size], strict=True):
            ranks[rank].append(micro_batch)
    return ranks


def encode_micro_batches(micro_batches: Sequence[MicroBatch], denominator: float) -> bytes:
    """Return the bytes of one rank's micro-batches; about 9 bytes per completion token, and one for each expert."""
    parts = [HEADER.pack(MAGIC, len(micro_batches), denominator)]
    for micro_batch in micro_batches:
        parts.append(COUNT.pack(len(micro_batch)))
        parts += [
            SEQUENCE.pack(len(s.prompt_token_ids), len(s.token_ids), s.advantage, s.weight, *s.routing)
            for s in micro_batch
        ]
    for sequence in (s for micro_batch in micro_batches for s in micro_batch):
        parts += [
            np.asarray(sequence.prompt_token_ids, "<i4").tobytes(),
            np.asarray(sequence.token_ids, "<i4").tobytes(),
            np.asarray(sequence.generator_logprobs, "<f4").tobytes(),
            np.asarray(sequence.loss_mask, np.uint8).tobytes(),
            b"" if sequence.routed_experts is None else sequence.routed_experts.tobytes(),
        ]
    return b"".join(parts)


def decode_micro_batches(data: bytes) -> tuple[list[MicroBatch], float]:
    """Inverse of `encode_micro_batches`. Raises ValueError if the lengths contradict the number of bytes."""
    reader = _Reader(data)
    magic, num_micro_batches, total = reader.unpack(HEADER)
    if magic != MAGIC:
        raise ValueError("not the bytes of micro-batches")
    headers = []
    for _ in range(num_micro_batches):
        (num_sequences,) = reader.unpack(COUNT)
        headers.append([reader.unpack(SEQUENCE) for _ in range(num_sequences)])
    micro_batches = [tuple(reader.sequence(*header) for header in rows) for rows in headers]
    reader.finish()
    return micro_batches, total


class _Reader:
    """Reads forward and never past the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def take(self, num_bytes: int) -> memoryview:
        end = self.offset + num_bytes
        if end > len(self.data):
            raise ValueError(f"micro-batches end after {len(self.data)} bytes, {end} were announced")
        view = memoryview(self.data)[self.offset : end]
        self.offset = end
        return view

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def sequence(
        self, num_prompt: int, num_tokens: int, advantage: float, weight: float, layers: int, choices: int
    ) -> TrainingSequence:
        return TrainingSequence(
            prompt_token_ids=np.frombuffer(self.take(4 * num_prompt), "<i4"),
            token_ids=np.frombuffer(self.take(4 * num_tokens), "<i4"),
            generator_logprobs=np.frombuffer(self.take(4 * num_tokens), "<f4"),
            loss_mask=np.frombuffer(self.take(num_tokens), np.uint8).astype(np.bool_),
            advantage=advantage,
            weight=weight,
            routed_experts=self.experts(num_prompt + num_tokens - 1, layers, choices) if layers else None,
        )

    def experts(self, num_tokens: int, layers: int, choices: int) -> RoutedExperts:
        return np.frombuffer(self.take(num_tokens * layers * choices), np.uint8).reshape(-1, layers, choices)

    def finish(self) -> None:
        if self.offset != len(self.data):
            raise ValueError(f"micro-batches have {len(self.data) - self.offset} bytes too many")
