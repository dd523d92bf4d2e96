"""A 64-bit checksum of buffers that is quick on CPU and GPU and the same on both.

Definition, all arithmetic modulo 2^64. Each buffer is padded with zero bytes to rows of ROW little-endian 64-bit words
w[r, i]. Row sums s[r] = sum_i w[r, i] * a[i], with a[i] = (i * GOLDEN) | 1. From h = 0 each buffer's number of bytes
and then its row sums are folded, in order: h = h * PRIME + s[r]. Since every a[i] and PRIME are odd, a change in one
word changes h for certain; anything else is missed with a chance of about 2^-64. It guards against faults, not enemies.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
import torch

ROW = 1 << 14
GOLDEN = 0x9E3779B97F4A7C15
PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_ROWS_AT_ONCE = 512
"""On a GPU: few launches; as much scratch as a piece of a version is long (64 MiB)."""


class Checksum:
    """The same, buffer by buffer."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, buffer: torch.Tensor) -> None:
        for word in (buffer.numel(), *_row_sums(buffer)):
            self.value = (self.value * PRIME + word) & _MASK


class ChecksumBeside(Checksum):
    """The same on a thread of its own, so that a processor sends or receives meanwhile; a GPU is quick enough without.

    To be used in a `with` statement. A buffer must not change until the next one is added, or `wait` returned.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1, "weight-checksum") if device.type == "cpu" else None
        self._adding: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def add(self, buffer: torch.Tensor) -> None:
        self.wait()
        if self._thread is None:
            super().add(buffer)
        else:
            self._adding = self._thread.submit(super().add, buffer)

    def wait(self) -> int:
        """The checksum of all that was added."""
        if self._adding is not None:
            self._adding.result()
        return self.value


def checksum(buffers: Iterable[torch.Tensor]) -> int:
    """Checksum of uint8 buffers of shape [n], on any device."""
    total = Checksum()
    for buffer in buffers:
        total.add(buffer)
    return total.value


def _row_sums(buffer: torch.Tensor) -> list[int]:
    weights = (torch.arange(ROW, device=buffer.device) * signed(GOLDEN)) | 1
    row_bytes = ROW * 8
    full = buffer.numel() // row_bytes * row_bytes
    rows = buffer[:full].view(torch.int64).view(-1, ROW)
    sums = [_products(part, weights) for part in torch.split(rows, _ROWS_AT_ONCE)] if full else []
    if full < buffer.numel():
        last = torch.zeros(row_bytes, dtype=torch.uint8, device=buffer.device)
        last[: buffer.numel() - full] = buffer[full:]
        sums.append((last.view(torch.int64) * weights).sum().view(1))
    return torch.cat(sums).tolist() if sums else []


def _products(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """[n, ROW] times [ROW]. Of integers CUDA has no such product, and torch's on a CPU reads memory more slowly."""
    if rows.device.type == "cuda":
        return (rows * weights).sum(dim=1)
    return torch.from_numpy(np.dot(rows.numpy(), weights.numpy()))


def signed(word: int) -> int:
    """The same 64 bits as torch's int64 takes them."""
    return word - (1 << 64) if word >> 63 else word
