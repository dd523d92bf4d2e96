"""The records of a file that somebody appends to, read from where the last look ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Generic

from rollcast.runfolder.growing_file import GrowingFile
from rollcast.runfolder.records import Record, parse


class RecordFile(Generic[Record]):
    """A torn or foreign line is passed over.

    Attributes:
        num_skipped: such lines so far.
    """

    def __init__(self, path: Path, kind: type[Record]) -> None:
        self._file = GrowingFile(path)
        self._kind = kind
        self.num_skipped = 0

    @property
    def was_written_anew(self) -> bool:
        """Since the first look; what was read before is void, and to open it again tells what it is now."""
        return self._file.num_beginnings > 1

    def read(self) -> Iterator[Record]:
        """The complete lines up to the file's end; nothing where there is no file."""
        while lines := self._file.next_lines():
            for line in filter(bytes.strip, lines):
                try:
                    yield parse(line, self._kind)
                except ValueError:
                    self.num_skipped += 1
