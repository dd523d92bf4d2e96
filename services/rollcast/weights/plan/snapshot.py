"""One version, or one rank's rows of it, in preallocated, reused buffers; views into them are the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch

from rollcast.weights.plan.manifest import BucketSpec, TensorSpec
from rollcast.wire.version import PolicyVersion

ALIGNMENT_BYTES = 64
"""Every bucket starts at a multiple of it."""


class Snapshot:
    """Bytes in one memory.

    `buffers[i]`: uint8, [specs[i].num_bytes]. `version`: the version that a sender's bytes are; None while they are
    being written.
    """

    def __init__(self, specs: Sequence[BucketSpec], memory: torch.Tensor, path: str = "") -> None:
        """memory: uint8 [memory_bytes(specs)]. path: the file that other processes read it from; empty = none."""
        self.specs = tuple(specs)
        self.memory = memory
        self.path = path
        self.buffers: list[torch.Tensor] = []
        offset = 0
        for spec in self.specs:
            self.buffers.append(memory[offset : offset + spec.num_bytes])
            offset += _aligned(spec.num_bytes)
        self.version: PolicyVersion | None = None
        self.checksum: int | None = None
        """Checksum of all buffers (`ProcessorChecksum`); None = computed when they are sent."""

    @classmethod
    def on(cls, device: torch.device, specs: Sequence[BucketSpec]) -> Snapshot:
        """A snapshot in new memory of `device`. Raises MemoryError or RuntimeError if it does not fit."""
        size = memory_bytes(specs)
        if device.type == "cpu":
            # numpy asks the kernel for large pages, which are quicker to read and write.
            memory = torch.from_numpy(np.empty(max(size, ALIGNMENT_BYTES), np.uint8))[:size]
            # Zeroing takes the pages now, not when the first version is written.
            return cls(specs, memory.zero_())
        # Not zeroed: that would be queued on the caller's stream, and could run after other streams have written.
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        if device.type == "cuda":
            # Other streams write into it. What this stream still does to reused memory must be over by then.
            torch.cuda.current_stream(device).synchronize()
        return cls(specs, memory)

    def bucket_views(self, index: int) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
        """Tensors of one bucket, in order, each a view of the buffer: write into it to fill the bucket."""
        buffer = self.buffers[index]
        offset = 0
        for spec in self.specs[index].tensors:
            end = offset + spec.num_bytes
            yield spec, buffer[offset:end].view(getattr(torch, spec.dtype)).view(spec.shape)
            offset = end

    def views(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) of the whole version in order: what a model's load_weights takes."""
        return iter(self._views)

    @cached_property
    def _views(self) -> list[tuple[str, torch.Tensor]]:
        # Made once: thousands of them would lengthen the pause of every version.
        return [(spec.name, view) for index in range(len(self.specs)) for spec, view in self.bucket_views(index)]


def memory_bytes(specs: Sequence[BucketSpec]) -> int:
    """Size of a snapshot of these buckets."""
    return sum(_aligned(spec.num_bytes) for spec in specs)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
