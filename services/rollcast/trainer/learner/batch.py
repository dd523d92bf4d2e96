"""Sequences of rollout groups, cut into micro-batches of bounded size for each rank, and their
bytes.

A micro-batch is one forward and backward pass of one rank. FSDP's collectives run in lock-step, so
every rank gets the same number of micro-batches (empty ones at the end) and the i-th ones of all
ranks are about equally long. Their bytes are those of safetensors: no pickle.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rollcast.recipe.difficulty import CoefficientFactors
from rollcast.recipe.effective_batch import EffectiveBatch
from rollcast.rollouts.records import (
    Logprobs,
    Rollout,
    RolloutGroup,
    RoutedExperts,
    TokenIds,
    loss_mask,
)

NUMBERS = ("advantage", "weight", "kl_factor", "entropy_factor")
"""Fields of a training sequence that are one number for all of its loss tokens."""
TokenAdvantages = NDArray[np.float32]
ARRAYS = (
    "prompt_token_ids",
    "token_ids",
    "generator_logprobs",
    "loss_mask",
    "routed_experts",
    "token_advantages",
)
"""Fields of a training sequence that are arrays, or None and then take no byte."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSequence:
    """One token sequence of a kept rollout: a prompt of P tokens and a completion of L tokens.

    A rollout of one answer is one sequence. An episode has one more for each of its branches, all
    with its weight.
    """

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
    kl_factor: float = 1.0
    """Factor of the coefficient of the KL penalty (`rollcast.recipe.difficulty`)."""
    entropy_factor: float = 1.0
    """Factor of the coefficient of the entropy bonus."""
    routed_experts: RoutedExperts | None = None
    """[P + L - 1, layers, choices] uint8: what the generator's routers chose. None = not
    recorded."""
    token_advantages: TokenAdvantages | None = None
    """[L] float32 advantage of each token, used in place of `advantage`. None = all tokens have
    that."""
    origin: tuple[int, int, int] = (0, 0, 0)
    """Index of its group in the batch, of its rollout in the group, and number of the sequence in
    the rollout. Known at rank 0 alone."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.token_ids)


class RouterShape(NamedTuple):
    """Shape of the expert choices that a router replay needs."""

    layers: int
    """Layers with a router."""
    experts: int
    """Experts of a layer."""
    choices: int
    """Experts of a token in a layer."""


MicroBatch = tuple[TrainingSequence, ...]


def num_loss_tokens(rollout: Rollout) -> int:
    """Tokens of all its sequences that carry loss."""
    return sum(int(loss_mask(sequence).sum()) for sequence in rollout.sequences)


def training_sequences(
    groups: Sequence[RolloutGroup],
    effective: EffectiveBatch,
    factors: CoefficientFactors | None = None,
    token_advantages: Mapping[int, Sequence[TokenAdvantages]] = MappingProxyType({}),
) -> list[TrainingSequence]:
    """Return the sequences of the kept rollouts. `effective` and `factors` have one entry per
    rollout: groups and rollouts in order.

    Without factors the coefficients of KL penalty and entropy bonus are the recipe's.
    `token_advantages`: by index, of the rollouts whose tokens do not share one advantage, [L] for
    each of their sequences.
    """
    rollouts = [
        (position, group, place, rollout)
        for position, group in enumerate(groups)
        for place, rollout in enumerate(group.rollouts)
    ]
    assert len(rollouts) == len(effective.kept_mask)
    kept_sequences = []
    for index in np.flatnonzero(effective.kept_mask):
        position, group, place, rollout = rollouts[index]
        sequence_advantages = token_advantages.get(int(index))
        for number, sequence in enumerate(rollout.sequences):
            training_sequence = TrainingSequence(
                prompt_token_ids=rollout.sequence_prompt(sequence, group.prompt_token_ids),
                token_ids=sequence.token_ids,
                generator_logprobs=sequence.logprobs,
                loss_mask=loss_mask(sequence),
                advantage=float(effective.advantages[index]),
                weight=float(effective.weights[index]),
                kl_factor=1.0 if factors is None else float(factors.kl[index]),
                entropy_factor=1.0 if factors is None else float(factors.entropy[index]),
                routed_experts=sequence.routed_experts,
                token_advantages=None
                if sequence_advantages is None
                else sequence_advantages[number],
                origin=(position, place, number),
            )
            if rollout.episode is None:
                kept_sequences.append(training_sequence)
            # A sequence without loss would take a pass for nothing.
            elif training_sequence.loss_mask.any():
                kept_sequences.append(_until_last_loss(training_sequence))
    return kept_sequences


def _until_last_loss(sequence: TrainingSequence) -> TrainingSequence:
    """The sequence without the tokens after its last one with loss: what an environment gave there
    changes nothing.
    """
    length = int(np.flatnonzero(sequence.loss_mask)[-1]) + 1
    # The last token is never an input, so no router has chosen for it.
    inputs = len(sequence.prompt_token_ids) + length - 1
    experts = sequence.routed_experts
    advantages = sequence.token_advantages
    return replace(
        sequence,
        token_ids=sequence.token_ids[:length],
        generator_logprobs=sequence.generator_logprobs[:length],
        loss_mask=sequence.loss_mask[:length],
        routed_experts=None if experts is None else experts[:inputs],
        token_advantages=None if advantages is None else advantages[:length],
    )


def denominator(sequences: Iterable[TrainingSequence]) -> float:
    """Return sum_t w_t over the whole batch, by which the objective of all micro-batches and ranks
    is divided.
    """
    return float(sum(sequence.weight * int(sequence.loss_mask.sum()) for sequence in sequences))


def padded_tokens(micro_batch: MicroBatch) -> int:
    return len(micro_batch) * max((sequence.num_tokens for sequence in micro_batch), default=0)


def packed_tokens(micro_batch: MicroBatch) -> int:
    return sum(sequence.num_tokens for sequence in micro_batch)


def plan_micro_batches(
    sequences: Sequence[TrainingSequence],
    *,
    world_size: int,
    max_tokens: int,
    packing: bool = False,
) -> list[list[MicroBatch]]:
    """Return the micro-batches of each rank [world_size], equally many for all.

    A micro-batch has at most `max_tokens` tokens, padding included unless they are packed, or is
    one longer sequence. Equally long sequences go together; the largest micro-batches are halved
    until their number is a multiple of `world_size`.
    """
    size = packed_tokens if packing else padded_tokens
    micro_batches: list[MicroBatch] = []
    current: list[TrainingSequence] = []
    # The longest first, so that sequences of similar length share padding.
    for sequence in sorted(sequences, key=lambda s: s.num_tokens, reverse=True):
        if current and size((*current, sequence)) > max_tokens:
            micro_batches.append(tuple(current))
            current = []
        current.append(sequence)
    if current:
        micro_batches.append(tuple(current))
    while len(micro_batches) % world_size:
        # A single sequence is halved last: its second half is empty.
        largest = max(
            range(len(micro_batches)),
            key=lambda i: (len(micro_batches[i]) > 1, size(micro_batches[i])),
        )
        largest_batch = micro_batches[largest]
        half = (len(largest_batch) + 1) // 2
        micro_batches[largest : largest + 1] = [largest_batch[:half], largest_batch[half:]]
    micro_batches.sort(key=size, reverse=True)
    # Deal them out row by row, every second row backwards: the ranks' sums stay close, too.
    ranks: list[list[MicroBatch]] = [[] for _ in range(world_size)]
    for row, start in enumerate(range(0, len(micro_batches), world_size)):
        order = range(world_size) if row % 2 == 0 else reversed(range(world_size))
        for rank, micro_batch in zip(order, micro_batches[start : start + world_size], strict=True):
            ranks[rank].append(micro_batch)
    return ranks


def encode_micro_batches(micro_batches: Sequence[MicroBatch], denominator: float) -> bytes:
    """Return the bytes of one rank's micro-batches; about 9 bytes per completion token, and one for
    each expert.
    """
    sequences = [sequence for micro_batch in micro_batches for sequence in micro_batch]
    arrays = {
        "counts": np.array([len(micro_batch) for micro_batch in micro_batches], np.int64),
        "denominator": np.array([denominator]),
    }
    for name in NUMBERS:
        arrays[name] = np.array([getattr(sequence, name) for sequence in sequences])
    for index, sequence in enumerate(sequences):
        for name in ARRAYS:
            if (array := getattr(sequence, name)) is not None:
                arrays[f"{index}.{name}"] = np.ascontiguousarray(array)
    return save(arrays)


def decode_micro_batches(data: bytes) -> tuple[list[MicroBatch], float]:
    """Inverse of `encode_micro_batches`. Raises ValueError for other bytes."""
    try:
        arrays = load(data)
        counts = arrays["counts"].tolist()
        numbers = {name: arrays[name].tolist() for name in NUMBERS}
        sequences = []
        for index in range(sum(counts)):
            fields: dict[str, Any] = {name: values[index] for name, values in numbers.items()}
            fields |= {name: arrays.get(f"{index}.{name}") for name in ARRAYS}
            sequences.append(TrainingSequence(**fields))
        remaining = iter(sequences)
        micro_batches = [tuple(islice(remaining, count)) for count in counts]
        return micro_batches, float(arrays["denominator"][0])
    except (SafetensorError, KeyError, IndexError) as error:
        raise ValueError("not the bytes of micro-batches") from error
