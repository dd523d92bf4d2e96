"""A library without the machine code of other cards: same layout, and what a card loads is as it
was.
"""

from __future__ import annotations

import random
import struct

import pytest

from testkit.gpu.packing.machine_code import MACHINE_CODE, MAGIC, PTX, without_other_architectures

ENTRY_HEADER_BYTES = 64


def fatbin(*entries: tuple[int, int, bytes]) -> bytes:
    """As the compiler writes it, of (kind, architecture, code)."""
    body = b""
    for kind, architecture, code in entries:
        header = struct.pack("<HHIQ", kind, 0x101, ENTRY_HEADER_BYTES, len(code)).ljust(28, b"\1")
        body += (header + struct.pack("<I", architecture)).ljust(ENTRY_HEADER_BYTES, b"\2") + code
    return MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


OURS = b"ours" * 20
OTHERS = b"others" * 20
OLD_PTX = b"ptx" * 20


def test_code_of_other_cards_is_zeroed_and_nothing_moves() -> None:
    library = b"\x7fELF" + fatbin(
        (MACHINE_CODE, 80, OTHERS),
        (MACHINE_CODE, 90, OURS),
        (PTX, 90, OLD_PTX),
        (MACHINE_CODE, 100, OTHERS),
    )
    library += b"between" + fatbin((MACHINE_CODE, 120, OTHERS)) + b"the end"
    trimmed = without_other_architectures(library, 90)
    assert len(trimmed) == len(library)
    assert trimmed.count(OURS) == 1
    assert trimmed.find(OURS) == library.find(OURS)
    assert OTHERS not in trimmed
    assert OLD_PTX not in trimmed, "the driver takes the machine code"
    assert trimmed.startswith(b"\x7fELF")
    assert trimmed.endswith(b"the end")
    assert trimmed.replace(b"\0", b"") == library.replace(OTHERS, b"").replace(
        OLD_PTX, b""
    ).replace(b"\0", b"")


def test_ptx_that_the_driver_can_compile_stays_where_no_machine_code_is() -> None:
    library = fatbin((MACHINE_CODE, 100, OTHERS), (PTX, 80, OLD_PTX), (PTX, 100, OTHERS))
    trimmed = without_other_architectures(library, 90)
    assert OLD_PTX in trimmed
    assert OTHERS not in trimmed


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_only_look_like_a_fatbin_stay(seed: int) -> None:
    rng = random.Random(seed)
    noise = rng.randbytes(400)
    library = noise[:200] + MAGIC + noise[200:] + MAGIC
    assert without_other_architectures(library, 90) == library


def test_entries_after_a_torn_one_stay() -> None:
    whole = fatbin((MACHINE_CODE, 80, OTHERS), (7, 80, OURS), (MACHINE_CODE, 80, b"unread" * 20))
    trimmed = without_other_architectures(whole, 90)
    assert OTHERS not in trimmed
    assert OURS in trimmed
    assert b"unread" in trimmed
