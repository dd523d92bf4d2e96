"""One version, or one rank's rows of it, in preallocated, reused buffers; views into them are the
tensors.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import torch

from rollcast.weights.plan.manifest import BucketSpec, TensorSpec
from rollcast.wire.version import PolicyVersion


class Snapshot:
    """Bytes in one memory.

    `buffers[i]`: uint8, [specs[i].num_bytes]. `version`: the version that a sender's bytes are;
    None while they are being written.
    """

    def __init__(self, specs: Sequence[BucketSpec], memory: torch.Tensor, path: str = "") -> None:
        """memory: uint8 [memory_bytes(specs)]. path: the file that other processes read it from;
        empty = none.
        """
        self.specs = tuple(specs)
        self.memory = memory
        self.path = path
        self.buffers: list[torch.Tensor] = []
        offset = 0
        for spec in self.specs:
            self.buffers.append(memory[offset : offset + spec.num_bytes])
            offset += _align(spec.num_bytes)
        self.version: PolicyVersion | None = None
        self.checksum: int | None = None
        """Checksum of all buffers (`ProcessorChecksum`); None = computed when they are sent."""

    @classmethod
    def on(cls, device: torch.device, specs: Sequence[BucketSpec]) -> Snapshot:
        """A snapshot in new memory of `device`.

        Raises MemoryError or RuntimeError if it does not fit.
        """
        size = memory_bytes(specs)
        if device.type == "cpu":
            # Zeroing takes the pages now, not when the first version is written.
            return cls(specs, new_pages(size).zero_())
        # Not zeroed: that would be queued on the caller's stream, and could run after other streams
        # have written.
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        if device.type == "cuda":
            # Other streams write into it. What this stream still does to reused memory must be over
            # by then.
            torch.cuda.current_stream(device).synchronize()
        return cls(specs, memory)

    def bucket_views(self, index: int) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
        """Tensors of one bucket, in order, each a view of the buffer: write into it to fill the
        bucket.
        """
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
        return [
            (spec.name, view)
            for index in range(len(self.specs))
            for spec, view in self.bucket_views(index)
        ]


def new_pages(size: int) -> torch.Tensor:
    """Memory of the kernel, uint8 [size]. Raises MemoryError.

    malloc keeps freed memory for the threads of one arena, and each epoch has other threads.
    """
    try:
        pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes: {error}") from error
    # Large pages are quicker to read and write; not every kernel has them.
    with suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)[:size]


def memory_bytes(specs: Sequence[BucketSpec]) -> int:
    """Size of a snapshot of these buckets."""
    return sum(_align(spec.num_bytes) for spec in specs)


def _align(num_bytes: int) -> int:
    # Every bucket starts at a multiple of it.
    alignment_bytes = 64
    return -(-num_bytes // alignment_bytes) * alignment_bytes
