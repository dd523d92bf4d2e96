"""A micro-batch as tensors on the device: its sequences padded to equal length, or packed into one
row.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollcast.trainer.learner.attention import Packing
from rollcast.trainer.learner.batch import MicroBatch
from rollcast.trainer.learner.router_replay import UNKNOWN_EXPERT

Grid = NDArray[np.int64]
"""[B, S] token ids."""


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """One micro-batch on the device: T loss tokens in B rows of S tokens; packed sequences are one
    row.
    """

    input_ids: Tensor
    """[B, S]"""
    positions: Tensor
    """[T] index into [B * S] of the token before each loss token."""
    targets: Tensor
    """[T]"""
    generator_logprobs: Tensor
    """[T]"""
    advantages: Tensor
    """[T]"""
    weights: Tensor
    """[T]"""
    kl_factors: Tensor
    """[T] what the coefficient of the KL penalty is multiplied by."""
    entropy_factors: Tensor
    """[T] what the coefficient of the entropy bonus is multiplied by."""
    rollout: Tensor
    """[T] index of the sequence."""
    routed_experts: Tensor | None
    """[B, S, layers, choices] int16, UNKNOWN_EXPERT if not recorded; None = recorded for no
    sequence."""
    packing: Packing | None = None
    """Bounds of the packed sequences; None = padded."""


def pad_micro_batch(micro_batch: MicroBatch, device: torch.device) -> DeviceBatch:
    """Pad on the right.

    An empty micro-batch becomes one token without a target: its collectives still take place.
    """
    longest = max((sequence.num_tokens for sequence in micro_batch), default=1)
    grid = np.zeros((max(len(micro_batch), 1), longest), dtype=np.int64)
    return _fill(
        micro_batch, grid, [row * longest for row in range(len(micro_batch))], device, None
    )


def pack_micro_batch(micro_batch: MicroBatch, device: torch.device) -> DeviceBatch:
    """Lay the sequences one after the other.

    An empty micro-batch becomes one token without a target.
    """
    lengths = [sequence.num_tokens for sequence in micro_batch] or [1]
    bounds = list(accumulate(lengths, initial=0))
    packing = Packing(
        position_ids=_copy(np.concatenate([np.arange(length) for length in lengths])[None], device),
        bounds=_copy(np.asarray(bounds, dtype=np.int32), device),
        longest=max(lengths),
    )
    grid = np.zeros((1, bounds[-1]), dtype=np.int64)
    return _fill(micro_batch, grid, bounds[: len(micro_batch)], device, packing)


def _copy(array: NDArray[Any], device: torch.device) -> Tensor:
    """Onto the device, without a wait of the host: a copy from memory that is not pinned would take
    place after all queued work, and the host would queue the next micro-batch only then.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _fill(
    micro_batch: MicroBatch,
    grid: Grid,
    starts: list[int],
    device: torch.device,
    packing: Packing | None,
) -> DeviceBatch:
    """Put the sequences at `starts`, indices into the flattened grid of zeros."""
    # A view: writing to it fills the grid.
    flat_ids = grid.reshape(-1)
    positions = []
    for start, sequence in zip(starts, micro_batch, strict=True):
        num_prompt = len(sequence.prompt_token_ids)
        flat_ids[start : start + num_prompt] = sequence.prompt_token_ids
        flat_ids[start + num_prompt : start + sequence.num_tokens] = sequence.token_ids
        # The logits at a token are those of the token after it.
        positions.append(start + num_prompt - 1 + np.flatnonzero(sequence.loss_mask))
    counts = [len(of_sequence) for of_sequence in positions]
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *positions])
    logprobs = [sequence.generator_logprobs[sequence.loss_mask] for sequence in micro_batch]

    def per_token(values: list[float] | list[int], dtype: type) -> Tensor:
        return _copy(np.repeat(np.asarray(values, dtype=dtype), counts), device)

    return DeviceBatch(
        input_ids=_copy(grid, device),
        positions=_copy(flat, device),
        # Each position is that of the token before its target.
        targets=_copy(flat_ids[flat + 1] if len(flat) else flat, device),
        generator_logprobs=_copy(
            np.concatenate([np.zeros(0, dtype=np.float32), *logprobs]), device
        ),
        advantages=_advantages(micro_batch, counts, device),
        weights=per_token([s.weight for s in micro_batch], np.float64),
        kl_factors=per_token([s.kl_factor for s in micro_batch], np.float64),
        entropy_factors=per_token([s.entropy_factor for s in micro_batch], np.float64),
        rollout=per_token(list(range(len(micro_batch))), np.int64),
        routed_experts=_experts(micro_batch, grid.shape, starts, device),
        packing=packing,
    )


def _advantages(micro_batch: MicroBatch, counts: list[int], device: torch.device) -> Tensor:
    """[T] float64: each token's own where its sequence has them, else that of its rollout."""
    values = np.repeat(
        np.asarray([sequence.advantage for sequence in micro_batch], dtype=np.float64), counts
    )
    start = 0
    for sequence, count in zip(micro_batch, counts, strict=True):
        if sequence.token_advantages is not None:
            values[start : start + count] = sequence.token_advantages[sequence.loss_mask]
        start += count
    return _copy(values, device)


def _experts(
    micro_batch: MicroBatch, shape: tuple[int, ...], starts: list[int], device: torch.device
) -> Tensor | None:
    recorded_experts = [
        (start, s.routed_experts)
        for start, s in zip(starts, micro_batch, strict=True)
        if s.routed_experts is not None
    ]
    if not recorded_experts:
        return None
    padded_experts = np.full(
        (*shape, *recorded_experts[0][1].shape[1:]), UNKNOWN_EXPERT, dtype=np.int16
    )
    flat = padded_experts.reshape(-1, *padded_experts.shape[2:])
    for start, experts in recorded_experts:
        flat[start : start + len(experts)] = experts
    return _copy(padded_experts, device)
