"""Sound files of every format, damaged at random."""

from __future__ import annotations

import random
from pathlib import Path

from tests.curves.bounded import CURVE, Bounded

FILES = sorted(path for path in (Path(__file__).parent / "files").rglob("*") if path.is_file())


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


def check_damage(files: list[Path], copies: int, seed: int, folder: Path, bounded: Bounded) -> None:
    """Each damaged copy of each file is a curve or one sentence."""
    chance = random.Random(seed)
    made: list[Path] = []
    for file in files:
        for number in range(copies):
            place = folder / f"{len(made)}-{number}"
            place.mkdir()
            made.append(place / file.name)
            made[-1].write_bytes(damaged(file.read_bytes(), chance))
    for outcome in bounded.outcomes(*made):
        assert outcome.startswith((CURVE, str(folder)))
