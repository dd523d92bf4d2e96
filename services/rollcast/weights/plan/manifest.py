"""The content of a version: tensors in order, packed into buckets of one dtype; and its protobuf
form.

Both sides derive every offset from the bucket plan, so only raw bytes travel, followed by the
trailer of `rollcast.weights.transport.lane_transfer`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""torch dtypes that may travel, without the prefix, and their size in bytes."""

PIECE_BYTES = 64 << 20
"""Larger buckets (one huge tensor) are sent in pieces of this size, so that a deadline is always
that of a piece."""
MAX_BYTES = 1 << 44


class ManifestError(ValueError):
    """A manifest that came over the wire contradicts itself or exceeds the bounds."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: Hugging Face name, torch dtype without the prefix ("bfloat16"), shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True)
class BucketSpec:
    """Tensors of one dtype, packed back to back: every offset is a multiple of the item size."""

    tensors: tuple[TensorSpec, ...]

    @property
    def num_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self.tensors)


@dataclass(frozen=True)
class Manifest:
    """One version as it travels. `lm_head` is fp32 | model and must agree on both sides."""

    version: PolicyVersion
    buckets: tuple[BucketSpec, ...]
    lm_head: str


def plan_buckets(specs: Iterable[TensorSpec], bucket_bytes: int) -> tuple[BucketSpec, ...]:
    """Cut tensors, in order, into buckets of one dtype and at most `bucket_bytes`; a larger tensor
    has its own.
    """
    buckets: list[list[TensorSpec]] = []
    num_bytes = 0
    for spec in specs:
        if (
            not buckets
            or num_bytes + spec.num_bytes > bucket_bytes
            or spec.dtype != buckets[-1][0].dtype
        ):
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(spec)
        num_bytes += spec.num_bytes
    return tuple(BucketSpec(tuple(tensors)) for tensors in buckets)


def manifest_to_proto(manifest: Manifest) -> weights_pb2.Manifest:
    return weights_pb2.Manifest(
        version=manifest.version.to_proto(),
        buckets=[_bucket_to_proto(bucket) for bucket in manifest.buckets],
        lm_head=manifest.lm_head,
    )


def manifest_from_proto(message: weights_pb2.Manifest) -> Manifest:
    """Inverse of `manifest_to_proto`. Raises ManifestError."""
    buckets = tuple(_bucket_from_proto(bucket) for bucket in message.buckets)
    tensors = [tensor for bucket in buckets for tensor in bucket.tensors]
    max_tensors = 1 << 20
    if len(tensors) > max_tensors:
        raise ManifestError(f"manifest: {len(tensors)} tensors, at most {max_tensors} are accepted")
    # Both sides load by name, so a name must be unique.
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ManifestError("manifest: a tensor's name occurs twice")
    if total_bytes(buckets) > MAX_BYTES:
        raise ManifestError(f"manifest: more than {MAX_BYTES} bytes")
    return Manifest(PolicyVersion.from_proto(message.version), buckets, message.lm_head)


def _bucket_to_proto(bucket: BucketSpec) -> weights_pb2.Bucket:
    tensors = [
        weights_pb2.Tensor(name=t.name, dtype=t.dtype, shape=t.shape) for t in bucket.tensors
    ]
    return weights_pb2.Bucket(tensors=tensors, num_bytes=bucket.num_bytes)


def _bucket_from_proto(message: weights_pb2.Bucket) -> BucketSpec:
    bucket = BucketSpec(tuple(_tensor_from_proto(tensor) for tensor in message.tensors))
    # A bucket is viewed as one dtype at both ends: its tensors' offsets are multiples of the item
    # size.
    if len({tensor.dtype for tensor in bucket.tensors}) != 1:
        raise ManifestError("manifest: a bucket is empty or mixes dtypes")
    # The two ends would cut the bytes into different pieces and wait for each other.
    if bucket.num_bytes != message.num_bytes:
        raise ManifestError(
            f"manifest: a bucket says {message.num_bytes} bytes, its tensors need "
            f"{bucket.num_bytes}"
        )
    return bucket


def _tensor_from_proto(message: weights_pb2.Tensor) -> TensorSpec:
    if message.dtype not in DTYPE_BYTES:
        raise ManifestError(
            f"manifest: dtype {message.dtype!r} of {message.name!r} is not one that travels"
        )
    return TensorSpec(message.name, message.dtype, tuple(message.shape))


def total_bytes(buckets: Sequence[BucketSpec]) -> int:
    """Size of one version."""
    return sum(bucket.num_bytes for bucket in buckets)


def apply_seconds(timeout_seconds: float, num_bytes: int) -> float:
    """How long a version of `num_bytes` may take to be applied, if one without bytes may take
    `timeout_seconds`.
    """
    # An apply that is slower counts as stuck. One worker that copies from host memory without page
    # locks reaches 8 GB/s. Up to eight share the machine's memory, and before the first apply each
    # locks the pages.
    return timeout_seconds + num_bytes / 1_000_000_000


def num_pieces(bucket_bytes: Iterable[int]) -> int:
    """Broadcasts that one version takes, given the size of each bucket."""
    return sum(-(-num_bytes // PIECE_BYTES) for num_bytes in bucket_bytes)
