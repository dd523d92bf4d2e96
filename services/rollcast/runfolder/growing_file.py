"""A file that somebody appends lines to, read from where the last look ended."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

MAX_READ_BYTES = 16 << 20
"""Held at once."""
MAX_UNENDED_BYTES = 1 << 20
"""Of a last line that is looked at before it ends."""
COMPARED_BYTES = 4096
"""Of the beginning, by which a file that was written anew is told."""


class GrowingFile:
    """Its complete lines; a last line that is not ended yet waits for its end.

    Attributes:
        num_lines: handed out so far; counted anew where the file begins anew.
        num_beginnings: how often it began: one more each time it was written anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._beginning = b""
        self.num_lines = 0
        self.num_beginnings = 1

    def next_lines(self) -> list[bytes]:
        """The next complete lines, 16 MiB at most, none where the file cannot be read.

        They come from the beginning again where the file became shorter or begins otherwise than before.
        """
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._offset or not self._begins_as_before(file):
                    self._offset = self.num_lines = 0
                    self.num_beginnings += 1
                file.seek(self._offset)
                chunk = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        complete = chunk[: chunk.rfind(b"\n") + 1]
        if not complete and len(chunk) == MAX_READ_BYTES:
            complete = chunk
        if self._offset == 0:
            self._beginning = complete[:COMPARED_BYTES]
        self._offset += len(complete)
        lines = complete.splitlines()
        self.num_lines += len(lines)
        return lines

    def unended(self) -> bytes:
        """What stands behind the last line that was handed out, without an end yet; nothing where that is long."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                rest = file.read(MAX_UNENDED_BYTES + 1)
        except OSError:
            return b""
        return rest if b"\n" not in rest and len(rest) <= MAX_UNENDED_BYTES else b""

    def _begins_as_before(self, file: BinaryIO) -> bool:
        file.seek(0)
        return file.read(len(self._beginning)) == self._beginning
