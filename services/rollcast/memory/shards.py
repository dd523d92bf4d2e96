"""How many numbers of the weights a rank holds: FSDP2 cuts every weight by rows."""

import math
from collections.abc import Iterable, Mapping

from rollcast.memory.architecture import Shape


def rows_of_rank(rows: int, rank: int, ranks: int) -> int:
    """Rows of one rank, cut as torch.chunk does."""
    chunk = -(-rows // ranks)
    return max(0, min(chunk, rows - rank * chunk))


def count_rank_numbers(weights: Iterable[tuple[str, Shape]], rank: int, ranks: int) -> int:
    """How many numbers of these weights a rank holds."""
    return sum(rows_of_rank(shape[0], rank, ranks) * math.prod(shape[1:]) for _, shape in weights)


def count_gathered(weights: Mapping[str, Shape], ranks: int) -> int:
    """How many numbers a gathered unit has, each weight padded to equal shards."""
    return ranks * count_rank_numbers(weights.items(), 0, ranks)
