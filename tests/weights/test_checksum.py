"""The checksum against its definition: the published XXH3; row sums computed one word at a time in
plain integers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.weights.transport.checksum import (
    FNV_PRIME_64,
    GOLDEN_RATIO_64,
    ROW_WORDS,
    Checksum,
    GpuChecksum,
    ProcessorChecksum,
)

MASK = (1 << 64) - 1
ROW_BYTES = 8 * ROW_WORDS
KINDS = pytest.mark.parametrize("kind", [ProcessorChecksum, GpuChecksum])


def slow_checksum(buffers: list[bytes]) -> int:
    value = 0
    for buffer in buffers:
        value = (value * FNV_PRIME_64 + len(buffer)) & MASK
        for start in range(0, len(buffer), ROW_BYTES):
            row = buffer[start : start + ROW_BYTES]
            total = 0
            for index in range(0, len(row), 8):
                word = int.from_bytes(row[index : index + 8].ljust(8, b"\0"), "little")
                total += word * ((index // 8 * GOLDEN_RATIO_64) & MASK | 1)
            value = (value * FNV_PRIME_64 + total) & MASK
    return value


def of(kind: type[Checksum], *buffers: bytes) -> int:
    total = kind()
    for buffer in buffers:
        total.add(torch.tensor(list(buffer), dtype=torch.uint8))
    return total.value()


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_that_of_a_gpu_follows_its_definition(buffers: list[bytes]) -> None:
    assert of(GpuChecksum, *buffers) == slow_checksum(buffers)


def test_that_of_a_gpu_follows_its_definition_over_many_rows() -> None:
    random = torch.Generator().manual_seed(0)
    for num_bytes in (ROW_BYTES - 1, ROW_BYTES, 2 * ROW_BYTES + 13, 9 * ROW_BYTES):
        buffer = torch.randint(0, 256, (num_bytes,), generator=random, dtype=torch.uint8)
        total = GpuChecksum()
        total.add(buffer)
        assert total.value() == slow_checksum([buffer.numpy().tobytes()])


@pytest.mark.parametrize(
    ("data", "digest"),
    [(b"", 0x2D06800538D394C2), (b"a", 0xE6C632B61E964E1F), (b"abc", 0x78AF5F94892F3950)],
    ids=["nothing", "a", "abc"],
)
def test_that_of_a_processor_is_the_xxh3_that_is_published(data: bytes, digest: int) -> None:
    assert of(ProcessorChecksum, data) == digest


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_that_of_a_processor_is_of_the_bytes_however_they_are_cut(buffers: list[bytes]) -> None:
    """What a rank stages is summed up bucket by bucket, what travels piece by piece."""
    assert of(ProcessorChecksum, *buffers) == of(ProcessorChecksum, b"".join(buffers))


@KINDS
@given(data=st.binary(min_size=1, max_size=300), draw=st.data())
def test_one_wrong_byte_never_passes(kind: type[Checksum], data: bytes, draw: Any) -> None:
    index = draw.draw(st.integers(0, len(data) - 1))
    wrong = bytearray(data)
    wrong[index] ^= draw.draw(st.integers(1, 255))
    assert of(kind, data) != of(kind, bytes(wrong))


@KINDS
def test_order_and_length_count(kind: type[Checksum]) -> None:
    assert of(kind, b"one bucket", b"another....") != of(kind, b"another....", b"one bucket")
    assert of(kind, b"one bucket") != of(kind, b"one bucket\0")
