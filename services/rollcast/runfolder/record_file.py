"""The records of a file that another process appends to; each look continues where the last one ended."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic

from rollcast.runfolder.growing_file import GrowingFile
from rollcast.runfolder.records import Record, parse


class RecordFile(Generic[Record]):
    """Incomplete and foreign lines are skipped.

    Attributes:
        num_skipped: skipped lines so far, without those that an earlier process read.
    """

    def __init__(self, path: Path, kind: type[Record], *, num_known: int = 0) -> None:
        """`num_known`: lines of the file that an earlier process read."""
        self._file = GrowingFile(path)
        self._kind = kind
        self._num_known = num_known
        self.num_skipped = 0

    @property
    def num_lines(self) -> int:
        """Lines read so far; the count starts again if the file was replaced."""
        return self._file.num_lines

    @property
    def was_written_anew(self) -> bool:
        """Whether the file was replaced since the first look. Earlier records are then invalid; open the file again."""
        return self._file.num_beginnings > 1

    def read(self) -> Iterator[Record]:
        """The records in the complete lines up to the file's end; none if there is no file."""
        while lines := self._file.next_lines():
            for record, _ in self._parsed(lines):
                yield record

    def read_some(self) -> Iterator[tuple[Record, bool]]:
        """The records of one look, 16 MiB at most, each with whether it is new to this and earlier processes."""
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
