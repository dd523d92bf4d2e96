"""A kind of input that the product reads, and what may come of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

STORED = Path(__file__).parent / "seeds"
"""KIND/NAME: small valid inputs. KIND/crashers/NAME: inputs that once were findings."""
CRASHERS = "crashers"

Mutator = Callable[[bytes, Sequence[bytes], Random], bytes]
"""Makes an input of a valid one. The sequence: all seeds, for splices."""


@dataclass(frozen=True)
class Target:
    """One kind of input."""

    kind: str
    make_seeds: Callable[[], list[bytes]]
    """Valid inputs, besides the stored ones."""
    mutate: Mutator
    passes: Callable[[bytes], bool]
    """Whether an input gets beyond the first check. Others are read as well, but not counted."""
    read: Callable[[bytes], object]
    """The product's own function."""
    errors: tuple[type[Exception], ...]
    """Errors that it documents. Empty = it raises none."""
    modules: tuple[str, ...]
    """Whose lines are counted: rollcast.NAME, with all modules below it."""
    seconds: float = 1.0
    """Processor time that every input may take, and every MiB of it."""

    @property
    def seeds(self) -> list[bytes]:
        return self.make_seeds() + [file.read_bytes() for file in stored_files(self.kind)]

    def make_mutant(self, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
        """The input of a number: the same at every call."""
        chance = Random(f"{self.kind}/{seed}/{number}")
        content = chance.choice(seeds)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            content = self.mutate(content, seeds, chance)
        return content


def stored_files(kind: str) -> list[Path]:
    return sorted(file for file in STORED.joinpath(kind).glob("*") if file.is_file())


def is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def is_message(kind: type[Message]) -> Callable[[bytes], bool]:
    def parses(content: bytes) -> bool:
        try:
            kind.FromString(content)
        except DecodeError:
            return False
        return True

    return parses


def over_grpc(kind: type[Message], read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """gRPC parses a message itself, and hands over none that does not parse."""
    parses = is_message(kind)
    return lambda content: read(kind.FromString(content)) if parses(content) else None


@cache
def scratch_folder() -> Path:
    """A folder of this process, for functions that read files."""
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def scratch_file(name: str, content: bytes) -> Path:
    path = scratch_folder() / name
    path.write_bytes(content)
    return path
