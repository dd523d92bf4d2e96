"""The trained weights as one rank of several sees them: whole copies in host memory, and checksums.

The checksum of a weight is sum_i bits(x_i) (2 i + 1) modulo 2^64, with the bits of each float32
number. A change of one number always changes it. It is the sum of what the ranks' rows add, so that
it does not depend on how many ranks share a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor

from rollcast.trainer.learner.ranks import Ranks

NamedWeights = Sequence[tuple[str, DTensor]]
CopiedRows = Callable[[], list[NDArray[np.float32]]]
"""Returns a copy of this rank's rows of each weight; any thread may call it."""
WholeWeights = Callable[[], dict[str, NDArray[np.float32]]]
"""Waits for a transfer and returns rank 0's whole weights; any thread may call it."""
WeightSums = Callable[[], NDArray[np.int64]]
"""Returns [W] what this rank adds to the checksum of each weight; any thread may call it."""


def take_sums(weights: NamedWeights, ranks: Ranks) -> tuple[WeightSums, CopiedRows]:
    """The sums of this rank's rows as they are now, and the rows on the host, nothing of a GPU's.

    On the host the rows are copied here, which takes a tenth of the time of the sums.
    """
    if ranks.device.type == "cpu":
        copies = copy_rows(weights)

        def add_up() -> NDArray[np.int64]:
            pairs = zip(copies(), weights, strict=True)
            return np.array(
                [_host_sum(rows, _first_number(weight, ranks)) for rows, (_, weight) in pairs]
            )

        return add_up, copies
    with torch.no_grad():
        sums = torch.stack(
            [
                _device_sum(weight.to_local().float().reshape(-1), _first_number(weight, ranks))
                for _, weight in weights
            ]
        )
    return lambda: sums.cpu().numpy(), list


def in_digits(total: int) -> str:
    """A checksum as text."""
    return format(total % (1 << 64), "016x")


def array_digest(array: NDArray[np.float32]) -> str:
    """The checksum of a whole weight."""
    return in_digits(int(_host_sum(array, 0)))


@torch.no_grad()
def copy_rows(weights: NamedWeights) -> CopiedRows:
    """Copy this rank's rows of each weight as they are now to the host, in one piece of memory.

    The result cuts it; any thread may call that.
    """
    local = [weight.to_local() for _, weight in weights]
    shapes = [rows.shape for rows in local]
    sizes = [rows.numel() for rows in local]
    flat = torch.empty(sum(sizes))
    # One by one: on a GPU there may be no room for a second copy of all.
    for piece, rows in zip(torch.split(flat, sizes), local, strict=True):
        piece.copy_(rows.reshape(-1))

    def cut() -> list[NDArray[np.float32]]:
        pieces = torch.split(flat, sizes)
        return [piece.view(shape).numpy() for piece, shape in zip(pieces, shapes, strict=True)]

    return cut


def gather_weights(weights: NamedWeights, ranks: Ranks) -> WholeWeights:
    """The weights as they are now: the rows of the first replica's ranks are on their way to rank 0
    when it returns. Every rank calls it, and keeps the result until it has called that.
    """
    if ranks.rank >= ranks.num_shards:
        return dict
    # The next update changes the weights while the copy is on its way.
    own = copy_rows(weights)
    if ranks.rank > 0:
        sent = torch.from_numpy(np.concatenate([rows.reshape(-1) for rows in own()]))
        sending = Sending(start(dist.isend(sent, dst=0)), sent)
        return sending.wait
    shapes = [
        [(_num_rows(weight, rank, ranks), *weight.shape[1:]) for _, weight in weights]
        for rank in range(1, ranks.num_shards)
    ]
    received = [torch.empty(sum(map(math.prod, shapes_of_rank))) for shapes_of_rank in shapes]
    works = [start(dist.irecv(buffer, src=rank)) for rank, buffer in enumerate(received, start=1)]

    def wait_whole() -> dict[str, NDArray[np.float32]]:
        wait_for(works)
        parts = [own()]
        for buffer, shapes_of_rank in zip(received, shapes, strict=True):
            pieces = torch.split(buffer, [math.prod(shape) for shape in shapes_of_rank])
            parts.append(
                [
                    piece.view(shape).numpy()
                    for piece, shape in zip(pieces, shapes_of_rank, strict=True)
                ]
            )
        return {
            name: np.concatenate(rows)
            for (name, _), rows in zip(weights, zip(*parts, strict=True), strict=True)
        }

    return wait_whole


class Sending(NamedTuple):
    """A transfer to rank 0, with the memory that it reads."""

    work: dist.Work
    tensor: Tensor

    def wait(self) -> dict[str, NDArray[np.float32]]:
        # Ends with the collective timeout of the group at the latest.
        self.work.wait()
        return {}


def start(work: dist.Work | None) -> dist.Work:
    """A transfer that was begun between members of the group."""
    assert work is not None
    return work


def wait_for(works: Iterable[dist.Work]) -> None:
    for work in works:
        work.wait()


def _num_rows(weight: DTensor, rank: int, ranks: Ranks) -> int:
    """Rows of a rank: as many as FSDP gives each, and fewer or none at the end."""
    num_rows = weight.shape[0]
    each = -(-num_rows // ranks.num_shards)
    return max(0, min(each, num_rows - rank * each))


def _first_number(weight: DTensor, ranks: Ranks) -> int:
    """Index of this rank's first number in the whole weight."""
    num_rows = weight.shape[0]
    each = -(-num_rows // ranks.num_shards)
    first_row = min(num_rows, (ranks.rank % ranks.num_shards) * each)
    return first_row * (weight.numel() // num_rows)


def _device_sum(numbers: Tensor, first: int) -> Tensor:
    """The part of a checksum that the numbers from index `first` on make."""
    total = numbers.new_zeros((), dtype=torch.int64)
    # 64 MiB of whole numbers at a time
    for index, piece in enumerate(torch.split(numbers, 1 << 23)):
        begin = first + (index << 23)
        factors = torch.arange(begin, begin + len(piece), device=numbers.device) * 2 + 1
        total = total + (piece.view(torch.int32) * factors).sum()
    return total


def _host_sum(rows: NDArray[np.float32], first: int) -> np.int64:
    """The part that these rows make, on the host."""
    bits = rows.reshape(-1).view(np.int32)
    with np.errstate(over="ignore"):
        factors = _odd_numbers(len(bits)) + np.int64(2 * first)
        return np.int64((bits * factors).sum())


@lru_cache(maxsize=8)
def _odd_numbers(count: int) -> NDArray[np.int64]:
    return 2 * np.arange(count, dtype=np.int64) + 1
