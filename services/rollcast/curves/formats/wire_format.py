"""The fields of a protobuf message without its schema: what event files need is a handful of
numbers and names.
"""

from collections.abc import Iterator

WIRE_VARINT = 0
WIRE_FIXED64 = 1
WIRE_BYTES = 2
WIRE_FIXED32 = 5


def fields(message: memoryview) -> Iterator[tuple[int, int, memoryview, int]]:
    """Number, wire type, bytes and value of each field: the bytes are a part of `message`, the
    value is a varint's.

    Raises ValueError: it is not a message.
    """
    offset = 0
    end = len(message)
    while offset < end:
        key, offset = _varint(message, offset)
        number = key >> 3
        kind = key & 7
        if kind == WIRE_VARINT:
            value, offset = _varint(message, offset)
            yield number, kind, message[offset:offset], value
            continue
        if kind == WIRE_BYTES:
            length, offset = _varint(message, offset)
        elif kind in (WIRE_FIXED64, WIRE_FIXED32):
            length = 8 if kind == WIRE_FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} is not one of protobuf's")
        if length > end - offset:
            raise ValueError("a field is longer than its message")
        yield number, kind, message[offset : offset + length], 0
        offset += length


def payloads(message: memoryview, number: int) -> Iterator[memoryview]:
    """The bytes of each field of that number. Raises ValueError as `fields`."""
    for field_number, kind, payload, _ in fields(message):
        if (field_number, kind) == (number, WIRE_BYTES):
            yield payload


def _varint(message: memoryview, offset: int) -> tuple[int, int]:
    value = 0
    # Seven bits a byte: ten bytes hold 64 bits
    for byte_index in range(10):
        if offset + byte_index >= len(message):
            break
        byte = message[offset + byte_index]
        value |= (byte & 0x7F) << (7 * byte_index)
        if byte < 0x80:
            return value, offset + byte_index + 1
    raise ValueError("a number does not end")


def to_signed(value: int) -> int:
    """A varint as the int64 that it spells."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
