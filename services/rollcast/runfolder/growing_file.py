"""A file that another process appends lines to; each look continues where the last one ended."""

from pathlib import Path
from typing import BinaryIO

MAX_READ_BYTES = 16 << 20
"""Bytes of one look, which are in memory together."""
COMPARED_BYTES = 4096
"""Bytes at the beginning of the file. If they differ from before, the file was replaced."""


class GrowingFile:
    """Returns complete lines only; an unfinished last line is left for a later look.

    Attributes:
        num_lines: lines returned so far; the count starts again if the file was replaced.
        num_beginnings: 1, and one more for each time that the file was replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._beginning = b""
        self.num_lines = 0
        self.num_beginnings = 1

    def next_lines(self) -> list[bytes]:
        """The next complete lines, 16 MiB at most; none if the file cannot be read.

        They start from the beginning again if the file became shorter or its first bytes changed.
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

    def _begins_as_before(self, file: BinaryIO) -> bool:
        file.seek(0)
        return file.read(len(self._beginning)) == self._beginning
