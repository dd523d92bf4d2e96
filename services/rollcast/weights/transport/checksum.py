"""A 64-bit checksum of the sent bytes, fast on CPUs and GPUs. Both ends of a group must use the
same kind of device.

    on a CPU         XXH3 (64 bits) of all bytes, one after the other
    on a GPU         from h = 0 each buffer's number of bytes and then its row sums are folded, in
                     order: h = h * FNV_PRIME_64 + s modulo 2^64. A row is ROW_WORDS little-endian
                     64-bit words w[i], the last row padded with zero bytes, and its sum
                     s = sum_i w[i] * a[i] with a[i] = (i * GOLDEN_RATIO_64) | 1

Since every a[i] and FNV_PRIME_64 are odd, a change in one word always changes h on a GPU; any other
change is missed with probability about 2^-64. It detects faults, not forgery.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import torch
import xxhash

ROW_WORDS = 1 << 14
GOLDEN_RATIO_64 = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: spreads consecutive factors over all bits."""
FNV_PRIME_64 = 0x100000001B3


class ProcessorChecksum:
    """Checksum of the uint8 buffers of shape [n] that were added so far."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()

    def add(self, buffer: torch.Tensor) -> None:
        # Releases the GIL, so that sending and receiving go on meanwhile.
        self._hash.update(buffer.numpy().data)

    def value(self) -> int:
        return self._hash.intdigest()


class GpuChecksum:
    """Checksum of the buffers added so far, of sums that GPUs compute in parallel; any device can
    compute it.
    """

    def __init__(self) -> None:
        self._value = 0

    def add(self, buffer: torch.Tensor) -> None:
        for word in (buffer.numel(), *_row_sums(buffer)):
            # (1 << 64) - 1: the checksum has 64 bits.
            self._value = (self._value * FNV_PRIME_64 + word) & ((1 << 64) - 1)

    def value(self) -> int:
        return self._value


Checksum = ProcessorChecksum | GpuChecksum


def checksum_on(device: torch.device) -> Checksum:
    return GpuChecksum() if device.type == "cuda" else ProcessorChecksum()


class ChecksumBeside:
    """On a CPU, computed on its own thread while the next piece is sent or received; a GPU is fast
    enough without.

    Use it in a `with` statement. A buffer must not change until the next one is added, or `wait`
    has returned.
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
        # One buffer at a time: the order of the bytes is part of the checksum.
        self.wait()
        if self._thread is None:
            self._checksum.add(buffer)
        else:
            self._adding = self._thread.submit(self._checksum.add, buffer)

    def wait(self) -> int:
        """Wait for the thread; returns the checksum of all buffers added so far."""
        if self._adding is not None:
            self._adding.result()
        return self._checksum.value()


def checksum(buffers: Iterable[torch.Tensor], device: torch.device) -> int:
    """The checksum that `device` computes of these buffers."""
    accumulator = checksum_on(device)
    for buffer in buffers:
        accumulator.add(buffer)
    return accumulator.value()


def _row_sums(buffer: torch.Tensor) -> list[int]:
    weights = (torch.arange(ROW_WORDS, device=buffer.device) * signed_word(GOLDEN_RATIO_64)) | 1
    row_bytes = ROW_WORDS * 8
    full = buffer.numel() // row_bytes * row_bytes
    rows = buffer[:full].view(torch.int64).view(-1, ROW_WORDS)
    # Multiply and sum, because CUDA has no integer matrix product.
    # Few kernel launches, and at most as much scratch memory as a piece of a version (64 MiB)
    sums = (
        [(row_block * weights).sum(dim=1) for row_block in torch.split(rows, 512)] if full else []
    )
    if full < buffer.numel():
        last = torch.zeros(row_bytes, dtype=torch.uint8, device=buffer.device)
        last[: buffer.numel() - full] = buffer[full:]
        sums.append((last.view(torch.int64) * weights).sum().view(1))
    return torch.cat(sums).tolist() if sums else []


def signed_word(word: int) -> int:
    """The 64 bits of an unsigned word as torch's int64."""
    return word - (1 << 64) if word >> 63 else word
