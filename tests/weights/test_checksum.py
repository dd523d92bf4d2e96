"""The checksum against its definition, computed one word at a time in plain integers."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.weights.checksum import GOLDEN, PRIME, ROW, checksum

MASK = (1 << 64) - 1
ROW_BYTES = 8 * ROW


def slow_checksum(buffers: list[bytes]) -> int:
    value = 0
    for buffer in buffers:
        value = (value * PRIME + len(buffer)) & MASK
        for start in range(0, len(buffer), ROW_BYTES):
            row = buffer[start : start + ROW_BYTES]
            total = 0
            for index in range(0, len(row), 8):
                word = int.from_bytes(row[index : index + 8].ljust(8, b"\0"), "little")
                total += word * ((index // 8 * GOLDEN) & MASK | 1)
            value = (value * PRIME + total) & MASK
    return value


def as_tensor(data: bytes) -> torch.Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_it_follows_its_definition(buffers: list[bytes]) -> None:
    assert checksum([as_tensor(buffer) for buffer in buffers]) == slow_checksum(buffers)


def test_it_follows_its_definition_over_many_rows() -> None:
    random = torch.Generator().manual_seed(0)
    for num_bytes in (ROW_BYTES - 1, ROW_BYTES, 2 * ROW_BYTES + 13, 9 * ROW_BYTES):
        buffer = torch.randint(0, 256, (num_bytes,), generator=random, dtype=torch.uint8)
        assert checksum([buffer]) == slow_checksum([buffer.numpy().tobytes()])


@given(st.binary(min_size=1, max_size=300), st.data())
def test_one_wrong_byte_never_passes(data: Any, draw: Any) -> None:
    index = draw.draw(st.integers(0, len(data) - 1))
    wrong = bytearray(data)
    wrong[index] ^= draw.draw(st.integers(1, 255))
    assert checksum([as_tensor(data)]) != checksum([as_tensor(bytes(wrong))])


def test_order_and_length_count() -> None:
    one, two = as_tensor(b"one bucket"), as_tensor(b"another....")
    assert checksum([one, two]) != checksum([two, one])
    assert checksum([one]) != checksum([torch.cat([one, torch.zeros(1, dtype=torch.uint8)])])
