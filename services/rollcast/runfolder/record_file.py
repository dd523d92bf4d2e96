"""The records of a file that another process appends to; each look continues where the last one
ended.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic

from rollcast.runfolder.records import Record, parse

MAX_READ_BYTES = 16 << 20
"""Bytes of one look, which are in memory together."""


def newest_lines(path: Path, max_bytes: int) -> Iterator[bytes]:
    """Whole lines in the last `max_bytes` bytes of a file, the newest first; none if it cannot be
    read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            lines = file.read(max_bytes).split(b"\n")
    except OSError:
        return
    is_first_cut = size > max_bytes
    yield from reversed(lines[int(is_first_cut) : -1])


class RecordFile(Generic[Record]):
    """Incomplete and foreign lines are skipped; an unfinished last line is left for a later look.

    Attributes:
        num_lines: lines read so far; the count starts again if the file was replaced.
        num_skipped: skipped lines so far, without those that an earlier process read.
        was_written_anew: whether the file was replaced since the first look. Earlier records are
            then invalid; open the file again.
    """

    def __init__(self, path: Path, kind: type[Record], *, num_known: int = 0) -> None:
        """`num_known`: lines of the file that an earlier process read."""
        self._path = path
        self._kind = kind
        self._num_known = num_known
        self._offset = 0
        self._beginning = b""
        self.num_lines = 0
        self.num_skipped = 0
        self.was_written_anew = False

    def read(self) -> Iterator[Record]:
        """The records in the complete lines up to the file's end; none if there is no file."""
        while lines := self._next_lines():
            for record, _ in self._parse_lines(lines):
                yield record

    def read_some(self) -> Iterator[tuple[Record, bool]]:
        """The records of one look, 16 MiB at most, each with whether it is new to this and earlier
        processes.
        """
        return self._parse_lines(self._next_lines())

    def _next_lines(self) -> list[bytes]:
        """The next complete lines, 16 MiB at most; none if the file cannot be read.

        They start from the beginning again if the file became shorter or its first bytes changed.
        """
        try:
            with self._path.open("rb") as file:
                is_shorter = file.seek(0, 2) < self._offset
                file.seek(0)
                if is_shorter or file.read(len(self._beginning)) != self._beginning:
                    self._offset = self.num_lines = 0
                    self.was_written_anew = True
                file.seek(self._offset)
                chunk = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        complete = chunk[: chunk.rfind(b"\n") + 1]
        if not complete and len(chunk) == MAX_READ_BYTES:
            complete = chunk
        if self._offset == 0:
            # Bytes at the beginning of the file. If they differ from before, the file was replaced.
            self._beginning = complete[:4096]
        self._offset += len(complete)
        lines = complete.splitlines()
        self.num_lines += len(lines)
        return lines

    def _parse_lines(self, lines: Sequence[bytes]) -> Iterator[tuple[Record, bool]]:
        num_known = 0 if self.was_written_anew else self._num_known
        for line_number, line in enumerate(lines, start=self.num_lines - len(lines)):
            if not line.strip():
                continue
            try:
                yield parse(line, self._kind), line_number >= num_known
            except ValueError:
                self.num_skipped += line_number >= num_known
