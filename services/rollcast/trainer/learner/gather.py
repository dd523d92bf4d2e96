"""Sharded master weights -> whole weights at rank 0, in the generators' dtype, bucket by bucket.

Every rank walks through the same buckets in the same order on its main thread. Per bucket each rank packs its shards,
already in the generators' dtype, into one flat tensor; one collective brings them to rank 0, which puts the rows in
their places in a snapshot. FSDP shards a tensor of n rows over W ranks like torch.chunk: ceil(n / W) rows each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from rollcast.trainer.learner.model import Policy
from rollcast.weights.manifest import BucketSpec, TensorSpec
from rollcast.weights.snapshot import Snapshot


def weight_specs(policy: Policy, dtype: str) -> tuple[TensorSpec, ...]:
    """Return what is published: every weight under its Hugging Face name, as `dtype` ("bfloat16")."""
    return tuple(TensorSpec(name, dtype, tuple(weight.shape)) for name, weight in policy.named_weights())


def gather_weights(
    policy: Policy, buckets: Sequence[BucketSpec], snapshot: Snapshot | None, *, rank: int, world_size: int
) -> None:
    """Fill `snapshot` (rank 0; None elsewhere) with the weights. Collective; `buckets` are equal on every rank."""
    weights = dict(policy.named_weights())
    with torch.no_grad():
        for index, bucket in enumerate(buckets):
            views = [view for _, view in snapshot.bucket_views(index)] if snapshot is not None else []
            if world_size == 1:
                for spec, view in zip(bucket.tensors, views, strict=True):
                    view.copy_(weights[spec.name].to_local())
            else:
                _gather_bucket(bucket, weights, views, rank, world_size)


def shard_rows(num_rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """Return the range [start, end) of rows that `rank` holds."""
    chunk = -(-num_rows // world_size)
    return min(rank * chunk, num_rows), min((rank + 1) * chunk, num_rows)


def _gather_bucket(
    bucket: BucketSpec, weights: Mapping[str, DTensor], views: Sequence[Tensor], rank: int, world_size: int
) -> None:
    shards = [weights[spec.name].to_local() for spec in bucket.tensors]
    device, dtype = shards[0].device, getattr(torch, bucket.tensors[0].dtype)
    sizes = [shard.numel() for shard in shards]
    # Rank 0 holds the largest shard of every tensor: its size is everybody's, so that one collective fits all.
    capacity = sum(_shard_numel(spec, 0, world_size) for spec in bucket.tensors)
    packed = torch.zeros(capacity, dtype=dtype, device=device)
    for part, shard in zip(packed[: sum(sizes)].split_with_sizes(sizes), shards, strict=True):
        part.copy_(shard.reshape(-1))
    received = [torch.empty_like(packed) for _ in range(world_size)] if rank == 0 else None
    dist.gather(packed, received, dst=0)
    for source, flat in enumerate(received or ()):
        sizes = [_shard_numel(spec, source, world_size) for spec in bucket.tensors]
        for view, part in zip(views, flat[: sum(sizes)].split_with_sizes(sizes), strict=True):
            start, end = shard_rows(view.shape[0], source, world_size)
            rows = view[start:end]
            rows.copy_(part.view(rows.shape))


def _shard_numel(spec: TensorSpec, rank: int, world_size: int) -> int:
    start, end = shard_rows(spec.shape[0], rank, world_size)
    return (end - start) * math.prod(spec.shape[1:])
