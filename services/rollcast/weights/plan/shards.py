"""Which bytes of a version a trainer rank holds: FSDP shards a tensor of n rows over W ranks like
torch.chunk.

Rank r has rows [r c, (r + 1) c) of every tensor, with c = ceil(n / W); the last ranks may have
fewer, or none.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from rollcast.weights.plan.manifest import DTYPE_BYTES, BucketSpec


def shard_rows(num_rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """The range [start, end) of rows that `rank` holds."""
    chunk = -(-num_rows // world_size)
    return min(rank * chunk, num_rows), min((rank + 1) * chunk, num_rows)


def shard_buckets(
    buckets: Sequence[BucketSpec], rank: int, world_size: int
) -> tuple[BucketSpec, ...]:
    """The buckets that `rank` stages and sends: only its rows of every tensor,
    packed back to back.
    """

    def rows(shape: tuple[int, ...]) -> tuple[int, ...]:
        # A scalar is one row, which rank 0 holds.
        if not shape:
            return () if rank == 0 else (0,)
        start, end = shard_rows(shape[0], rank, world_size)
        return (end - start, *shape[1:])

    return tuple(
        BucketSpec(tuple(replace(spec, shape=rows(spec.shape)) for spec in bucket.tensors))
        for bucket in buckets
    )


def shard_segments(bucket: BucketSpec, rank: int, world_size: int) -> list[tuple[int, int]]:
    """Places of the packed bytes of `rank` in the whole bucket: (offset, length), in order, none
    empty or adjoining.

    A rank that holds everything has a single segment, so its pieces need not pass through other
    memory.
    """
    segments: list[tuple[int, int]] = []
    offset = 0
    for spec in bucket.tensors:
        row_bytes = DTYPE_BYTES[spec.dtype] * math.prod(spec.shape[1:])
        start, end = shard_rows(spec.shape[0] if spec.shape else 1, rank, world_size)
        first = offset + start * row_bytes
        length = (end - start) * row_bytes
        # The rank's rows of the tensor before end where these begin: one segment for both.
        if length and segments and sum(segments[-1]) == first:
            first, previous_length = segments.pop()
            length += previous_length
        if length:
            segments.append((first, length))
        offset += spec.num_bytes
    return segments
