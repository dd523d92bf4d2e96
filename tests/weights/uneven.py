"""Tensors whose rows no number of ranks divides."""

from __future__ import annotations

from rollcast.weights.plan.manifest import TensorSpec

UNEVEN = [
    TensorSpec("embedding", "bfloat16", (1_003, 30)),
    TensorSpec("norm", "float32", (2,)),
    TensorSpec("experts", "bfloat16", (5, 31, 17)),
    TensorSpec("row", "float32", (1, 90)),
]
"""Over three ranks: uneven, fewer rows than ranks, odd sizes."""
