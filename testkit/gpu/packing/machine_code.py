"""Machine code of other GPUs in a library: zeroed, so that it compresses to nothing while the
library's layout stays.

A fatbin is a header (magic, version 1, size of the header, size of the rest) and entries, one for
each architecture: kind (1 = PTX, 2 = machine code), size of the entry's header, size of its
payload, architecture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

MAGIC = b"\x50\xed\x55\xba"
FATBIN_HEADER_BYTES = 16
MIN_ENTRY_HEADER_BYTES = 32
MAX_ENTRY_HEADER_BYTES = 4_096
PTX = 1
MACHINE_CODE = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """Code of one architecture."""

    kind: Literal[1, 2]
    architecture: int
    """90 = sm_90."""
    start: int
    """First byte of the payload in the library."""
    length: int


def without_other_architectures(library: bytes, keep: int) -> bytes:
    """Return the library with the code of all architectures except `keep` zeroed.

    PTX of that or an older architecture stays if there is no machine code of `keep`: the driver
    compiles it.
    """
    trimmed = bytearray(library)
    for entries in fatbins(library):
        is_native = any(
            entry.kind == MACHINE_CODE and entry.architecture == keep for entry in entries
        )
        for entry in entries:
            if not _is_used(entry, keep, is_native=is_native):
                trimmed[entry.start : entry.start + entry.length] = bytes(entry.length)
    return bytes(trimmed)


def fatbins(library: bytes) -> Iterator[list[Entry]]:
    """The entries of each fatbin."""
    at = 0
    while (at := library.find(MAGIC, at)) >= 0:
        end = _end_of_fatbin(library, at)
        if end is None:
            at += len(MAGIC)
            continue
        yield list(_entries(library, at + FATBIN_HEADER_BYTES, end))
        at = end


def _is_used(entry: Entry, keep: int, *, is_native: bool) -> bool:
    if entry.kind == MACHINE_CODE:
        return entry.architecture == keep
    return not is_native and entry.architecture <= keep


def _end_of_fatbin(library: bytes, at: int) -> int | None:
    """None if the magic number is there by chance."""
    if at + FATBIN_HEADER_BYTES > len(library):
        return None
    version, header_bytes, payload_bytes = struct.unpack_from("<HHQ", library, at + len(MAGIC))
    end = at + FATBIN_HEADER_BYTES + int(payload_bytes)
    is_fatbin = version == 1 and header_bytes == FATBIN_HEADER_BYTES and end <= len(library)
    return end if is_fatbin else None


def _entries(library: bytes, at: int, end: int) -> Iterator[Entry]:
    # Bytes of an entry's header that are read
    while at + 64 <= end:
        kind, _, header_bytes, length = struct.unpack_from("<HHIQ", library, at)
        (architecture,) = struct.unpack_from("<I", library, at + 28)
        start = at + header_bytes
        is_plausible = (
            MIN_ENTRY_HEADER_BYTES <= header_bytes <= MAX_ENTRY_HEADER_BYTES
            and start + length <= end
        )
        if kind not in (PTX, MACHINE_CODE) or not is_plausible:
            return
        yield Entry(kind, architecture, start, length)
        at = start + length
