"""Sequences of rollout groups, cut into micro-batches of bounded size for each rank, and their bytes.

A micro-batch is one forward and backward pass of one rank. FSDP's collectives run in lock-step, so every rank gets the
same number of micro-batches (empty ones at the end) and the i-th ones of all ranks are about equally long.
Their bytes are those of safetensors: no pickle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rollcast.recipe.effective_batch import EffectiveBatch
from rollcast.rollouts.records import Logprobs, Rollout, RolloutGroup, RoutedExperts, TokenIds

ARRAYS = ("prompt_token_ids", "token_ids", "generator_logprobs", "loss_mask", "routed_experts")
"""Fields of a training sequence that are arrays."""


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
    return float(sum(sequence.weight * int(sequence.loss_mask.sum()) for sequence in sequences))


def padded_tokens(micro_batch: MicroBatch) -> int:
    return len(micro_batch) * max((sequence.num_tokens for sequence in micro_batch), default=0)


def packed_tokens(micro_batch: MicroBatch) -> int:
    return sum(sequence.num_tokens for sequence in micro_batch)


def plan_micro_batches(
    sequences: Sequence[TrainingSequence], *, world_size: int, max_tokens: int, packing: bool = False
) -> list[list[MicroBatch]]:
    """Return the micro-batches of each rank [world_size], equally many for all.

    A micro-batch has at most `max_tokens` tokens, padding included unless they are packed, or is one longer sequence.
    Equally long sequences go together; the largest micro-batches are halved until their number is a multiple of
    `world_size`.
    """
    size = packed_tokens if packing else padded_tokens
    micro_batches: list[MicroBatch] = []
    current: list[TrainingSequence] = []
    for sequence in sorted(sequences, key=lambda s: s.num_tokens, reverse=True):
        if current and size((*current, sequence)) > max_tokens:
            micro_batches.append(tuple(current))
            current = []
        current.append(sequence)
    if current:
        micro_batches.append(tuple(current))
    while len(micro_batches) % world_size:
        largest = max(range(len(micro_batches)), key=lambda i: (len(micro_batches[i]) > 1, size(micro_batches[i])))
        whole = micro_batches[largest]
        half = (len(whole) + 1) // 2
        micro_batches[largest : largest + 1] = [whole[:half], whole[half:]]
    micro_batches.sort(key=size, reverse=True)
    # Deal them out row by row, every second row backwards: the ranks' sums stay close, too.
    ranks: list[list[MicroBatch]] = [[] for _ in range(world_size)]
    for row, start in enumerate(range(0, len(micro_batches), world_size)):
        order = range(world_size) if row % 2 == 0 else reversed(range(world_size))
        for rank, micro_batch in zip(order, micro_batches[start : start + world_size], strict=True):
            ranks[rank].append(micro_batch)
    return ranks


def encode_micro_batches(micro_batches: Sequence[MicroBatch], denominator: float) -> bytes:
    """Return the bytes of one rank's micro-batches; about 9 bytes per completion token, and one for each expert."""
    sequences = [sequence for micro_batch in micro_batches for sequence in micro_batch]
    arrays = {
        "counts": np.array([len(micro_batch) for micro_batch in micro_batches], np.int64),
        "advantages": np.array([sequence.advantage for sequence in sequences]),
        "weights": np.array([sequence.weight for sequence in sequences]),
        "denominator": np.array([denominator]),
    }
    for index, sequence in enumerate(sequences):
        for name in ARRAYS:
            if (array := getattr(sequence, name)) is not None:
                arrays[f"{index}.{name}"] = np.ascontiguousarray(array)
    return save(arrays)


def decode_micro_batches(data: bytes) -> tuple[list[MicroBatch], float]:
    """Inverse of `encode_micro_batches`. Raises ValueError for other bytes."""
    try:
        arrays = load(data)
        numbers = zip(arrays["advantages"].tolist(), arrays["weights"].tolist(), strict=True)
        sequences = []
        for index, (advantage, weight) in enumerate(numbers):
            fields: dict[str, Any] = {name: arrays.get(f"{index}.{name}") for name in ARRAYS}
            sequences.append(TrainingSequence(advantage=advantage, weight=weight, **fields))
        remaining = iter(sequences)
        micro_batches = [tuple(islice(remaining, count)) for count in arrays["counts"].tolist()]
        return micro_batches, float(arrays["denominator"][0])
    except (SafetensorError, KeyError) as error:
        raise ValueError("not the bytes of micro-batches") from error
