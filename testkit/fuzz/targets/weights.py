"""Versions of weights: manifests, stored objects, and frames of them."""

from __future__ import annotations

import numpy as np

from rollcast.weights.plan.manifest import (
    Manifest,
    ManifestError,
    TensorSpec,
    manifest_from_proto,
    manifest_to_proto,
    plan_buckets,
)
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.stored_object import StoredObject, StoredVersion
from rollcast.weights.transport.word_code import Words, decode, encode
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion
from testkit.fuzz.message_mutation import change_message
from testkit.fuzz.mutation import change_bytes
from testkit.fuzz.target import Target, is_message, over_grpc
from testkit.rollouts.examples import VERSION


def _manifests() -> list[bytes]:
    specs = [
        TensorSpec("model.embed_tokens.weight", "bfloat16", (64, 8)),
        TensorSpec("model.norm.weight", "float32", (8,)),
        TensorSpec("scalar", "float32", ()),
    ]
    manifest = Manifest(VERSION, plan_buckets(specs, 512), "fp32")
    return [manifest_to_proto(manifest).SerializeToString()]


def _stored_versions() -> list[bytes]:
    objects = tuple(StoredObject(f"1.7-{rank}.rows", 100, 16, 5, 6) for rank in range(2))
    version = StoredVersion(VERSION, PolicyVersion(1, 6), objects)
    return [version.to_proto().SerializeToString()]


def _words() -> Words:
    return np.arange(3_000, dtype=np.uint16)


def _frames() -> list[bytes]:
    changed = _words()
    changed[[3, 700, 2_999]] += np.array([1, 5, 60_000], dtype=np.uint16)
    return [encode(changed, None), encode(changed, _words())]


TARGETS = (
    Target(
        "wire-manifest",
        _manifests,
        change_message(weights_pb2.Manifest),
        is_message(weights_pb2.Manifest),
        over_grpc(weights_pb2.Manifest, manifest_from_proto),
        (ManifestError,),
        ("weights.plan.manifest",),
    ),
    Target(
        "wire-stored-version",
        _stored_versions,
        change_message(weights_pb2.StoredVersion),
        is_message(weights_pb2.StoredVersion),
        over_grpc(weights_pb2.StoredVersion, StoredVersion.from_proto),
        (GroupError,),
        ("weights.transport.stored_object",),
    ),
    Target(
        "wire-frame",
        _frames,
        change_bytes,
        lambda content: len(content) > 9,
        lambda content: decode(content, _words()),
        (GroupError,),
        ("weights.transport.word_code",),
    ),
)
