"""Bucket planning, the manifest's protobuf form, hostile manifests."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.weights.plan.manifest import (
    DTYPE_BYTES,
    PIECE_BYTES,
    Manifest,
    ManifestError,
    TensorSpec,
    manifest_from_proto,
    manifest_to_proto,
    num_pieces,
    plan_buckets,
)
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
spec_lists = st.lists(st.tuples(st.sampled_from(sorted(DTYPE_BYTES)), shapes), max_size=30).map(
    lambda items: [TensorSpec(f"t{i}", dtype, shape) for i, (dtype, shape) in enumerate(items)]
)


@given(spec_lists, st.integers(1, 4000))
def test_buckets_keep_order_hold_one_dtype_and_are_as_full_as_allowed(
    specs: list[TensorSpec], limit: int
) -> None:
    buckets = plan_buckets(specs, limit)
    assert [tensor for bucket in buckets for tensor in bucket.tensors] == specs
    for bucket in buckets:
        assert len({tensor.dtype for tensor in bucket.tensors}) == 1
        assert bucket.num_bytes <= limit or len(bucket.tensors) == 1
    for bucket, following in itertools.pairwise(buckets):
        first = following.tensors[0]
        assert first.dtype != bucket.tensors[0].dtype or bucket.num_bytes + first.num_bytes > limit


@given(spec_lists, st.integers(1, 4000))
def test_a_manifest_survives_the_wire(specs: list[TensorSpec], limit: int) -> None:
    manifest = Manifest(PolicyVersion(3, 118), plan_buckets(specs, limit), "fp32")
    message = weights_pb2.Manifest.FromString(manifest_to_proto(manifest).SerializeToString())
    assert manifest_from_proto(message) == manifest


@given(spec_lists, st.integers(1, 4000))
def test_views_cover_every_byte_once(specs: list[TensorSpec], limit: int) -> None:
    snapshot = Snapshot.on(torch.device("cpu"), plan_buckets(specs, limit))
    views = list(snapshot.views())
    assert [(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in views] == [
        (spec.name, spec.dtype, spec.shape) for spec in specs
    ]
    for _, tensor in views:
        raw = tensor.reshape(-1).view(torch.uint8)
        assert not raw.any()  # nobody else has written here
        raw.fill_(1)
    assert all(bool(buffer.all()) for buffer in snapshot.buffers)


def test_sizes_are_those_of_torch() -> None:
    for dtype, size in DTYPE_BYTES.items():
        assert getattr(torch, dtype).itemsize == size


def test_a_large_bucket_is_sent_in_pieces() -> None:
    assert num_pieces([0, 1, PIECE_BYTES, PIECE_BYTES + 1]) == 4


def tensor(**fields: Any) -> weights_pb2.Tensor:
    return weights_pb2.Tensor(**{"name": "t", "dtype": "float32", "shape": [2], **fields})


@pytest.mark.parametrize(
    ("buckets", "complaint"),
    [
        ([weights_pb2.Bucket(tensors=[tensor(dtype="object")], num_bytes=8)], "dtype 'object'"),
        ([weights_pb2.Bucket(tensors=[tensor()], num_bytes=9)], "says 9 bytes"),
        ([weights_pb2.Bucket(tensors=[tensor(), tensor()], num_bytes=16)], "twice"),
        ([weights_pb2.Bucket(tensors=[], num_bytes=0)], "empty or mixes"),
        (
            [weights_pb2.Bucket(tensors=[tensor(), tensor(name="u", dtype="int8")], num_bytes=10)],
            "mixes dtypes",
        ),
        (
            [
                weights_pb2.Bucket(
                    tensors=[tensor(shape=[1 << 50])], num_bytes=math.prod([1 << 50, 4])
                )
            ],
            "more than",
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(buckets: Any, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint):
        manifest_from_proto(weights_pb2.Manifest(buckets=buckets))
