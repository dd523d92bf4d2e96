"""One complete version in preallocated, reused buffers; views into them are the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from rollcast.weights.checksum import checksum
from rollcast.weights.manifest import BucketSpec, TensorSpec
from rollcast.wire.version import PolicyVersion


class Snapshot:
    """Bytes of one version on one device.

    `buffers[i]`: uint8, [specs[i].num_bytes]. `version`: what the bytes are, set by whoever completed them; None while
    they are being written or after a broken transfer.
    """

    def __init__(self, specs: Sequence[BucketSpec], device: torch.device) -> None:
        self.specs = tuple(specs)
        self.device = device
        self.buffers = [torch.zeros(spec.num_bytes, dtype=torch.uint8, device=device) for spec in self.specs]
        self.version: PolicyVersion | None = None

    def bucket_views(self, index: int) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
        """Tensors of one bucket, in order, each a view of the buffer: write into it to fill the bucket."""
        buffer, offset = self.buffers[index], 0
        for spec in self.specs[index].tensors:
            end = offset + spec.num_bytes
            yield spec, buffer[offset:end].view(getattr(torch, spec.dtype)).view(spec.shape)
            offset = end

    def views(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) of the whole version in order: what a model's load_weights takes."""
        for index in range(len(self.specs)):
            for spec, tensor in self.bucket_views(index):
                yield spec.name, tensor

    def checksum(self) -> int:
        """Of all bytes in order, see `rollcast.weights.checksum`."""
        return checksum(self.buffers)
