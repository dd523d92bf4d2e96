"""Host memory of a rank while it reads the model: one weight at a time, in its stored dtype.

Without a GPU all rows of this rank stay in host memory. Rows stored in float32 stay as they were
read. Experts are stacked next to their single parts. Rows that need padding are then copied, one
weight after the other.
"""

import math

from rollcast.memory.architecture import ModelShape, Shape
from rollcast.memory.device import DeviceKind
from rollcast.memory.shards import count_rank_numbers


def host_bytes_while_read(
    model: ModelShape, kind: DeviceKind, *, rank: int, ranks: int, item: int
) -> int:
    """`item`: bytes of a number of the weights once they are read."""
    in_hand = model.stored_item * max(
        _read_at_once(model, name, shape, ranks) for name, shape in model.weights()
    )
    if kind == "gpu":
        return in_hand
    weights = list(model.weights())
    stacks = [
        count_rank_numbers([weight], rank, ranks)
        for weight in weights
        if _is_stacked(model, weight[0])
    ]
    beyond = max(0 if model.stored_item == item else in_hand, item * max(stacks, default=0))
    held_bytes = item * count_rank_numbers(weights, rank, ranks)
    peak_bytes = held_bytes + beyond
    # In another order of the weights, as files have it, the sum differs by the padding of small
    # ones: kilobytes.
    for weight in weights:
        rows, padded = (
            item * count_rank_numbers([weight], each_rank, ranks) for each_rank in (rank, 0)
        )
        if rows < padded:
            peak_bytes = max(peak_bytes, held_bytes + padded)
            held_bytes += padded - rows
    return peak_bytes


def _is_stacked(model: ModelShape, name: str) -> bool:
    return model.family.stacked and ".experts." in name


def _read_at_once(model: ModelShape, name: str, shape: Shape, ranks: int) -> int:
    """How many numbers of a weight are read together: experts that are stored one by one are read
    one by one.
    """
    if _is_stacked(model, name):
        return math.prod(shape[1:])
    return count_rank_numbers([(name, shape)], 0, ranks)
