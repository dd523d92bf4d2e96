"""Sound files of every format, damaged at random: each is a curve or one sentence, in a bounded process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.curves.bounded import CURVE, Bounded

FILES = sorted(path for path in (Path(__file__).parent / "files").rglob("*") if path.is_file())
DAMAGED_EACH = 12
"""Copies of each file."""


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut out, repeated or put elsewhere."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 30))):
        at, length = chance.randrange(len(changed) + 1), chance.randrange(1, 200)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = chance.randbytes(1)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = changed[at : at + length] * chance.randrange(1, 50)
            case _:
                changed[at:at] = chance.choice(
                    (b"{", b"[", b'"', b"\n", b"\x00", b"1e999", b"-1", b"9" * 400, b": ", b"|")
                )
        changed = changed or bytearray(b"0")
    return bytes(changed)


@pytest.mark.parametrize("index", range(0, len(FILES), 8))
def test_damage_is_a_curve_or_one_sentence(index: int, tmp_path: Path, bounded: Bounded) -> None:
    chance = random.Random(index)
    made: list[Path] = []
    for file in FILES[index : index + 8]:
        for number in range(DAMAGED_EACH):
            folder = tmp_path / f"{len(made)}-{number}"
            folder.mkdir()
            made.append(folder / file.name)
            made[-1].write_bytes(damaged(file.read_bytes(), chance))
    for outcome in bounded.outcomes(*made):
        assert outcome.startswith((CURVE, str(tmp_path)))
