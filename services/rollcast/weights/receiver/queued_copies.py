"""Copies from the host into a model: queued on the current stream one after another, none waited
for.

A model's own loading code copies one tensor at a time and waits for each. Within `QueuedCopies` the
same code queues its copies, and the caller synchronizes the stream once, at the end. Until then the
source must not be written.

A slice that is not one stretch of memory (a worker's part of a row-parallel weight) would first be
gathered in new memory of the host, by one processor. Here whole stretches cross the bus, and the
GPU takes its part out of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

MAX_SCRATCH_BYTES = 64 << 20
"""Memory of the GPU for stretches on their way, unless one row is longer. As large as a piece of a
broadcast."""


class QueuedCopies(TorchFunctionMode):
    """While it is active, `Tensor.copy_` from the host to devices of this kind is queued."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        arguments: tuple[Any, ...] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is torch.Tensor.copy_ and len(arguments) > 1:
            target, source = arguments[:2]
            if source.device.type == "cpu" and target.device.type == self._device.type:
                queue_copy(target, source)
                return target
        return function(*arguments, **(keywords or {}))


def queue_copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source` on the host into `target` on the device; returns before it has happened."""
    if source.is_contiguous() or target.shape != source.shape or 0 in source.stride():
        target.copy_(source, non_blocking=True)
    # Shorter stretches are not copied one by one: a call costs several microseconds, in which the
    # bus moves this much
    elif source[0].is_contiguous() and source[0].nbytes >= (64 << 10):
        for target_part, source_part in zip(target, source, strict=True):
            target_part.copy_(source_part, non_blocking=True)
    else:
        rows = max(1, MAX_SCRATCH_BYTES // (source.stride(0) * source.element_size()))
        for target_rows, source_rows in zip(
            torch.split(target, rows), torch.split(source, rows), strict=True
        ):
            _copy_through_scratch(target_rows, source_rows)


def _copy_through_scratch(target: torch.Tensor, source: torch.Tensor) -> None:
    """Move the stretch of memory that `source` is in, and take `source` out of it there."""
    last = sum(
        (size - 1) * stride for size, stride in zip(source.shape, source.stride(), strict=True)
    )
    stretch = source.as_strided((last + 1,), (1,))
    scratch = stretch.to(target.device, non_blocking=True)
    target.copy_(scratch.as_strided(source.shape, source.stride()))
