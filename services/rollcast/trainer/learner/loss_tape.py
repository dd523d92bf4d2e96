"""The values from which the loss of a step was computed, token by token, and checksums of the
weights around it: what the flight recorder keeps of the ranks' part of a step.

    begin (checksums) -> note (each micro-batch) -> end (checksums; rank 0 gathers all values)

The checksum of a weight is that of the whole tensor, so that it does not depend on how many ranks
share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from rollcast.trainer.learner.objective import TokenValues
from rollcast.trainer.learner.ranks import Ranks

NamedWeights = Iterable[tuple[str, DTensor]]


@dataclass(frozen=True, slots=True, eq=False)
class TapedStep:
    """The ranks' part of one step."""

    values: list[NDArray[np.float64]]
    """Rows [3 or 4, T] of each rank, in the order of its micro-batches: log-probs, entropy,
    advantages, and log-probs of the reference policy if there is one."""
    digests_before: dict[str, str]
    digests_after: dict[str, str]
    seconds: float
    """How long the step waited for them."""


@dataclass(eq=False)
class LossTape:
    """One rank's. `begin` and `end` are collective."""

    ranks: Ranks
    weights: Callable[[], NamedWeights]
    _noted: list[Tensor] = field(default_factory=list)
    _digests_before: dict[str, str] = field(default_factory=dict)
    _taped: TapedStep | None = None

    def __post_init__(self) -> None:
        self._seconds = 0.0

    def begin(self) -> None:
        started = time.perf_counter()
        self._noted.clear()
        self._taped = None
        self._digests_before = digests(self.weights(), self.ranks)
        self._seconds = time.perf_counter() - started

    def note(self, values: TokenValues) -> None:
        started = time.perf_counter()
        rows = [values.logprobs, values.entropy, values.advantages]
        if values.reference_logprobs is not None:
            rows.append(values.reference_logprobs)
        self._noted.append(torch.stack([row.detach().double() for row in rows]))
        self._seconds += time.perf_counter() - started

    def end(self) -> None:
        """After the optimizer's step, or in place of it."""
        started = time.perf_counter()
        after = digests(self.weights(), self.ranks)
        values = gather_columns(torch.cat(self._noted, dim=1).cpu(), self.ranks)
        self._noted.clear()
        if self.ranks.rank == 0:
            seconds = self._seconds + time.perf_counter() - started
            self._taped = TapedStep(values, self._digests_before, after, seconds)

    def take(self) -> TapedStep | None:
        """Rank 0: the newest step; None if it did not finish."""
        taped = self._taped
        self._taped = None
        return taped


def gather_columns(rows: Tensor, ranks: Ranks) -> list[NDArray[np.float64]]:
    """Rank 0: [R, T] of every rank, whose T differ; nothing on the others. On the host."""
    if ranks.world_size == 1:
        return [rows.numpy()]
    counts = torch.zeros(ranks.world_size, dtype=torch.int64)
    counts[ranks.rank] = rows.shape[1]
    dist.all_reduce(counts)
    padded = torch.zeros(rows.shape[0], int(counts.max()), dtype=rows.dtype)
    padded[:, : rows.shape[1]] = rows
    if ranks.rank > 0:
        dist.gather(padded)
        return []
    all_rows = [torch.empty_like(padded) for _ in range(ranks.world_size)]
    dist.gather(padded, all_rows)
    return [part[:, :count].numpy() for part, count in zip(all_rows, counts.tolist(), strict=True)]


def digests(weights: NamedWeights, ranks: Ranks) -> dict[str, str]:
    """The checksum of each weight: sum_i bits(x_i) (2 i + 1) modulo 2^64, with the bits of x_i as
    float32. A change of one number always changes it. Collective.
    """
    names = []
    sums = []
    for name, weight in weights:
        names.append(name)
        sums.append(_local_sum(weight))
    totals = torch.stack(sums)
    if ranks.num_shards > 1:
        # Replicas hold the same rows.
        dist.all_reduce(totals, group=ranks.mesh.get_group(ranks.mesh.ndim - 1))
    return {
        name: format(total % (1 << 64), "016x")
        for name, total in zip(names, totals.tolist(), strict=True)
    }


def array_digest(array: NDArray[np.float32]) -> str:
    """The checksum of a whole weight on the host, as `digests` computes it."""
    bits = array.reshape(-1).view(np.int32).astype(np.int64)
    with np.errstate(over="ignore"):
        total = int((bits * (2 * np.arange(len(bits), dtype=np.int64) + 1)).sum())
    return format(total % (1 << 64), "016x")


def _local_sum(weight: DTensor) -> Tensor:
    local = weight.to_local().detach().float().reshape(-1)
    _, offsets = compute_local_shape_and_global_offset(
        weight.shape, weight.device_mesh, weight.placements
    )
    # Weights are sharded by their first dimension.
    first = offsets[0] * (weight.numel() // weight.shape[0]) if weight.dim() else 0
    total = local.new_zeros((), dtype=torch.int64)
    # 64 MiB of whole numbers at a time
    for start in range(0, local.numel(), 1 << 23):
        piece = local[start : start + (1 << 23)]
        bits = piece.view(torch.int32).long()
        begin = first + start
        factors = torch.arange(begin, begin + len(piece), device=local.device) * 2 + 1
        total = total + (bits * factors).sum()
    return total
