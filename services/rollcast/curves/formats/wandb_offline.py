"""The .wandb file of a W&B run, which holds its history. It is in the folder of an offline run, and
of an online one.

The file is LevelDB's log: 7 bytes of a header, then blocks of 32 KiB that hold records, whole or in
pieces; a record is a protobuf message whose field 2 is an entry of the history.

Source: wandb/sdk/internal/datastore.py and wandb/proto/wandb_internal.proto.
"""

import json
import struct
from collections.abc import Iterator
from enum import IntEnum

from rollcast.curves.amounts import format_count
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.nested import MAX_FIELDS, flat
from rollcast.curves.formats.wire_format import WIRE_BYTES, fields, payloads
from rollcast.curves.sheet import Row, Sheet, TooMuch, refuse_json

NAME = "offline run of W&B"
ENDING = ".wandb"
FIRST_BYTES = b":W&B"
BLOCK_BYTES = 32_768
RECORD = struct.Struct("<IHB")
"""Checksum, length, kind."""


class _Piece(IntEnum):
    """Which part of a record a piece of the log is."""

    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4


_PIECES = frozenset(_Piece)


def recognises(log: LogFile) -> bool:
    return log.content.startswith(FIRST_BYTES)


def read(log: LogFile) -> Sheet:
    return Sheet.from_rows(NAME, rows(log))


def rows(log: LogFile) -> Iterator[Row]:
    """One row for each call of `wandb.log`, one after another."""
    num_bad = 0
    for record in _records(log.content):
        try:
            # Field 2 of a record is an entry of the history.
            entries = list(payloads(record, 2))
            history_rows = list(filter(None, map(_history, entries)))
        # TooMuch is a ValueError, but a limit refuses the whole file and not one record.
        except TooMuch:
            raise
        except (ValueError, RecursionError):
            num_bad += 1
            continue
        yield from history_rows
    if num_bad:
        log.tell(f"{log.path}: {format_count(num_bad, 'record')} left out, malformed")


def _records(content: bytes) -> Iterator[memoryview]:
    """The complete records.

    An unfinished record at the end is left out, and so are pieces without a beginning.
    """
    # The file's header: identifier, magic number and version
    at = 7
    view = memoryview(content)
    pieces: bytearray | None = None
    while at + RECORD.size <= len(content):
        block_bytes_left = BLOCK_BYTES - at % BLOCK_BYTES
        # LevelDB pads the end of a block that has no room for another header.
        if block_bytes_left < RECORD.size:
            at += block_bytes_left
            continue
        _, length, kind = RECORD.unpack_from(content, at)
        start = at + RECORD.size
        at = start + length
        if at > len(content) or kind not in _PIECES:
            return
        if kind == _Piece.FULL:
            pieces = None
            yield view[start:at]
        elif kind == _Piece.FIRST:
            pieces = bytearray(view[start:at])
        elif pieces is not None:
            pieces += view[start:at]
            # A larger record is damage or an attack
            if len(pieces) > (16 << 20):
                return
            if kind == _Piece.LAST:
                yield memoryview(bytes(pieces))
                pieces = None


def _history(message: memoryview) -> Row:
    row: Row = {}
    # Field 1 of an entry of the history is a value in it.
    for payload in payloads(message, 1):
        if len(row) < MAX_FIELDS:
            name, text = _item(payload)
            refuse_json(text)
            logged_value = json.loads(text) if text else None
            if name and not isinstance(logged_value, list):
                row |= flat({name: logged_value})
    return row


def _item(message: memoryview) -> tuple[str, str]:
    """Name and value as JSON; a nested name is joined."""
    key = text = ""
    nested: list[str] = []
    for number, kind, payload, _ in fields(message):
        # Fields of wandb's HistoryItem: 1 key, 2 nested_key, 16 value_json.
        spelt = bytes(payload).decode(errors="replace") if kind == WIRE_BYTES else ""
        if number == 1:
            key = spelt
        elif number == 2:
            nested.append(spelt)
        elif number == 16:
            text = spelt
    return key or "/".join(nested), text
