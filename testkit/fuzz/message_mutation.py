"""Protobuf messages changed field by field, so that they still parse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from testkit.fuzz.mutation import PIECES, change_bytes
from testkit.fuzz.target import Mutator

INTEGERS = (0, 1, -1, 2, 7, 100, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e308, 1e-320, float("inf"), float("-inf"), float("nan"))


def change_message(kind: type[Message]) -> Mutator:
    def change(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
        if chance.randrange(8):
            with suppress(DecodeError):
                message = kind.FromString(content)
                _change_fields(message, chance)
                return message.SerializeToString()
        return change_bytes(content, pool, chance)

    return change


def _change_fields(message: Message, chance: Random) -> None:
    """Change one field of the message or of one inside it."""
    messages: list[Any] = [message]
    for inner in messages:  # grows while it is gone through
        for field, value in inner.ListFields():
            if field.message_type is not None and not _is_map(field) and len(messages) < 500:
                messages += list(value) if field.is_repeated else [value]
    chosen = chance.choice(messages)
    fields = list(chosen.DESCRIPTOR.fields)
    if not fields:
        return
    field = chance.choice(fields)
    if _is_map(field):
        getattr(chosen, field.name)[chance.choice(("", "a", "x" * 1_000))] = "\x00"
    elif field.is_repeated:
        _change_list(getattr(chosen, field.name), field, chance)
    elif chance.randrange(4) == 0:
        chosen.ClearField(field.name)
    elif field.message_type is not None:
        getattr(chosen, field.name).SetInParent()
    else:
        with suppress(ValueError, TypeError, UnicodeError):
            setattr(chosen, field.name, _other(getattr(chosen, field.name), field, chance))


def _is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map, of texts to texts: no message here has another."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _change_list(values: Any, field: FieldDescriptor, chance: Random) -> None:
    at = chance.randrange(len(values)) if len(values) else 0
    if field.message_type is not None:
        match chance.randrange(3):
            case 0 if len(values):
                del values[at]
            case 1 if len(values):
                for _ in range(chance.choice((1, 1, 2, 200))):
                    values.add().CopyFrom(values[at])
            case _:
                values.add()
        return
    with suppress(ValueError, TypeError, UnicodeError, IndexError):
        match chance.randrange(3):
            case 0:
                del values[at]
            case 1:
                values[at] = _other(values[at], field, chance)
            case _:
                values.append(_other(values[at] if len(values) else None, field, chance))


def _other(value: Any, field: FieldDescriptor, chance: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return chance.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return change_bytes(value or b"", [value or b"0"], chance)
    if field.type == FieldDescriptor.TYPE_STRING:
        text = (value or "") + chance.choice(PIECES).decode("utf-8", "ignore")
        # A text that was made long before stays as it is
        return text * chance.choice((0, 1, 1, 1, 1_000 if len(text) < 1_000 else 1))
    if isinstance(value, int) and chance.randrange(3) == 0:
        return value + chance.choice((-1, 1))
    return chance.choice(INTEGERS)
