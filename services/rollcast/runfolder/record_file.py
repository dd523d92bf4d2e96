"""The records of a file that somebody appends to, read from where the last look ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic

from rollcast.runfolder.growing_file import GrowingFile
from rollcast.runfolder.records import Record, parse


class RecordFile(Generic[Record]):
    """A torn or foreign line is passed over.

    Attributes:
        num_skipped: such lines so far, without those that are known.
    """

    def __init__(self, path: Path, kind: type[Record], *, num_known: int = 0) -> None:
        """`num_known`: lines of the file that an earlier process read."""
        self._file = GrowingFile(path)
        self._kind = kind
        self._num_known = num_known
        self.num_skipped = 0

    @property
    def num_lines(self) -> int:
        """Read so far; counted anew where the file was written anew."""
        return self._file.num_lines

    @property
    def was_written_anew(self) -> bool:
        """Since the first look; what was read before is void, and to open it again tells what it is now."""
        return self._file.num_beginnings > 1

    def read(self) -> Iterator[Record]:
        """The complete lines up to the file's end; nothing where there is no file."""
        while lines := self._file.next_lines():
            for record, _ in self._parsed(lines):
                yield record

    def read_some(self) -> Iterator[tuple[Record, bool]]:
        """The complete lines of one look, 16 MiB at most, each with whether it is new: not known, or written anew."""
        return self._parsed(self._file.next_lines())

    def _parsed(self, lines: Sequence[bytes]) -> Iterator[tuple[Record, bool]]:
        known = 0 if self.was_written_anew else self._num_known
        for place, line in enumerate(lines, start=self._file.num_lines - len(lines)):
            if not line.strip():
                continue
            try:
                yield parse(line, self._kind), place >= known
            except ValueError:
                self.num_skipped += place >= known
