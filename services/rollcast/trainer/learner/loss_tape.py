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
from functools import lru_cache

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
Digests = Callable[[], dict[str, str]]
"""Returns the checksum of each weight by name; may be called in any thread."""


@dataclass(frozen=True, slots=True, eq=False)
class TapedStep:
    """The ranks' part of one step."""

    values: list[NDArray[np.float64]]
    """Rows [3 or 4, T] of each rank, in the order of its micro-batches: log-probs, entropy,
    advantages, and log-probs of the reference policy if there is one."""
    digests_before: Digests
    digests_after: Digests
    seconds: float
    """How long the step waited for them."""


@dataclass(eq=False)
class LossTape:
    """One rank's. `begin` and `end` are collective."""

    ranks: Ranks
    weights: Callable[[], NamedWeights]
    _noted: list[Tensor] = field(default_factory=list)
    _taped: TapedStep | None = None

    def __post_init__(self) -> None:
        self._seconds = 0.0
        self._digests_before: Digests = dict

    def begin(self) -> None:
        started = time.perf_counter()
        self._noted.clear()
        self._taped = None
        self._digests_before = take_digests(self.weights(), self.ranks)
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
        after = take_digests(self.weights(), self.ranks)
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


def take_digests(weights: NamedWeights, ranks: Ranks) -> Digests:
    """The checksum of each weight as it is now: sum_i bits(x_i) (2 i + 1) modulo 2^64 with the bits
    of float32. A change of one number always changes it. Collective.

    On a GPU, and over several ranks, the sums are made here. Whole weights on the host are copied,
    which takes a tenth of the time.
    """
    if holds_whole_weights(ranks):
        copies = copy_weights(weights)
        return lambda: {name: array_digest(array) for name, array in copies.items()}
    names = []
    sums = []
    with torch.no_grad():
        for name, weight in weights:
            names.append(name)
            sums.append(_local_sum(weight.to_local().float().reshape(-1), _first_number(weight)))
        totals = torch.stack(sums)
    if ranks.num_shards > 1:
        # Replicas hold the same rows.
        dist.all_reduce(totals, group=ranks.mesh.get_group(ranks.mesh.ndim - 1))
    return lambda: {
        name: _in_digits(total) for name, total in zip(names, totals.tolist(), strict=True)
    }


def holds_whole_weights(ranks: Ranks) -> bool:
    """Whether this rank has the whole weights, on the host."""
    return ranks.num_shards == 1 and ranks.device.type == "cpu"


@torch.no_grad()
def copy_weights(weights: NamedWeights) -> dict[str, NDArray[np.float32]]:
    """Whole weights on the host as they are now, in one piece of memory."""
    local = [(name, weight.to_local()) for name, weight in weights]
    flat = torch.cat([tensor.float().reshape(-1) for _, tensor in local])
    pieces = flat.split([tensor.numel() for _, tensor in local])
    return {
        name: piece.view(tensor.shape).numpy()
        for (name, tensor), piece in zip(local, pieces, strict=True)
    }


@torch.no_grad()
def gather_weights(weights: NamedWeights, ranks: Ranks) -> dict[str, NDArray[np.float32]]:
    """Whole weights in host memory, gathered one after the other; rank 0's alone. Collective."""
    if holds_whole_weights(ranks):
        return copy_weights(weights)
    arrays = {}
    for name, weight in weights:
        whole = weight.full_tensor()
        if ranks.rank == 0:
            # A copy: of a single rank it may be the weight itself.
            arrays[name] = whole.float().to("cpu", copy=True).numpy()
    return arrays


def array_digest(array: NDArray[np.float32]) -> str:
    """The checksum of a whole weight on the host, as `take_digests` has it."""
    bits = array.reshape(-1).view(np.int32)
    with np.errstate(over="ignore"):
        return _in_digits(int((bits * _odd_numbers(len(bits))).sum()))


def _in_digits(total: int) -> str:
    return format(total % (1 << 64), "016x")


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> NDArray[np.int64]:
    return 2 * np.arange(count, dtype=np.int64) + 1


def _first_number(weight: DTensor) -> int:
    """Index of this rank's first number in the whole weight, which is sharded by its first
    dimension.
    """
    _, offsets = compute_local_shape_and_global_offset(
        weight.shape, weight.device_mesh, weight.placements
    )
    return int(offsets[0]) * (weight.numel() // weight.shape[0]) if weight.dim() else 0


def _local_sum(row: Tensor, first: int) -> Tensor:
    """The part of a checksum that the numbers from `first` on make."""
    total = row.new_zeros((), dtype=torch.int64)
    # 64 MiB of whole numbers at a time
    for start, piece in enumerate(row.split(1 << 23)):
        begin = first + (start << 23)
        factors = torch.arange(begin, begin + len(piece), device=row.device) * 2 + 1
        total = total + (piece.view(torch.int32) * factors).sum()
    return total
