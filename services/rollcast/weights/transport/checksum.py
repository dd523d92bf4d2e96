"""A 64-bit checksum of what is sent, quick on either kind of device; the two ends of a group are of one kind.

    on a processor   XXH3 (64 bits) of all bytes, one after the other
    on a GPU         from h = 0 each buffer's number of bytes and then its row sums are folded, in order:
                     h = h * PRIME + s modulo 2^64. A row is ROW little-endian 64-bit words w[i], the last one padded
                     with zero bytes, and its sum s = sum_i w[i] * a[i] with a[i] = (i * GOLDEN) | 1

Since every a[i] and PRIME are odd, a change in one word changes h for certain on a GPU; anything else is missed with a
chance of about 2^-64. It guards against faults, not enemies.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self

import torch
import xxhash

ROW = 1 << 14
GOLDEN = 0x9E3779B97F4A7C15
PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_ROWS_AT_ONCE = 512
"""Few launches; as much scratch as a piece of a version is long (64 MiB)."""


class Checksum(Protocol):
    """Of buffers, uint8 of shape [n]."""

    def add(self, buffer: torch.Tensor) -> None: ...

    def value(self) -> int:
        """Of all that was added."""
        ...


class ProcessorChecksum:
    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()

    def add(self, buffer: torch.Tensor) -> None:
        self._hash.update(buffer.numpy().data)  # lets other threads run meanwhile

    def value(self) -> int:
        return self._hash.intdigest()


class GpuChecksum:
    """Of what can be computed side by side; any device can."""

    def __init__(self) -> None:
        self._value = 0

    def add(self, buffer: torch.Tensor) -> None:
        for word in (buffer.numel(), *_row_sums(buffer)):
            self._value = (self._value * PRIME + word) & _MASK

    def value(self) -> int:
        return self._value


def checksum_on(device: torch.device) -> Checksum:
    return GpuChecksum() if device.type == "cuda" else ProcessorChecksum()


class ChecksumBeside:
    """Computed on a thread of its own, so that a processor sends or receives meanwhile; a GPU is quick enough without.

    To be used in a `with` statement. A buffer must not change until the next one is added, or `wait` returned.
    """

    def __init__(self, device: torch.device) -> None:
        self._checksum = checksum_on(device)
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
            self._checksum.add(buffer)
        else:
            self._adding = self._thread.submit(self._checksum.add, buffer)

    def wait(self) -> int:
        """The checksum of all that was added."""
        if self._adding is not None:
            self._adding.result()
        return self._checksum.value()


def checksum(buffers: Iterable[torch.Tensor], device: torch.device) -> int:
    """As `device` computes it."""
    total = checksum_on(device)
    for buffer in buffers:
        total.add(buffer)
    return total.value()


def _row_sums(buffer: torch.Tensor) -> list[int]:
    weights = (torch.arange(ROW, device=buffer.device) * signed(GOLDEN)) | 1
    row_bytes = ROW * 8
    full = buffer.numel() // row_bytes * row_bytes
    rows = buffer[:full].view(torch.int64).view(-1, ROW)
    # Of integers CUDA has no matrix product.
    sums = [(part * weights).sum(dim=1) for part in torch.split(rows, _ROWS_AT_ONCE)] if full else []
    if full < buffer.numel():
        last = torch.zeros(row_bytes, dtype=torch.uint8, device=buffer.device)
        last[: buffer.numel() - full] = buffer[full:]
        sums.append((last.view(torch.int64) * weights).sum().view(1))
    return torch.cat(sums).tolist() if sums else []


def signed(word: int) -> int:
    """The same 64 bits as torch's int64 takes them."""
    return word - (1 << 64) if word >> 63 else word
