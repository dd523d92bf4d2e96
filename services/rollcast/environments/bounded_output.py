"""The beginning of an output that may have no end."""

from typing import IO


class BoundedOutput:
    """Keeps a number of bytes, and counts those that are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self._num_left = max_bytes
        self.num_dropped = 0

    def keep(self, chunk: bytes) -> bytes:
        """Count a chunk; returns the beginning of it that is kept."""
        kept_bytes = chunk[: self._num_left]
        self._num_left -= len(kept_bytes)
        self.num_dropped += len(chunk) - len(kept_bytes)
        return kept_bytes


class CommandOutput(BoundedOutput):
    """Output and exit code of a command."""

    def __init__(self, max_bytes: int, file: IO[bytes] | None = None) -> None:
        """file: takes the output in place of memory."""
        super().__init__(max_bytes)
        self._file = file
        self.content = bytearray()
        """Standard output and standard error as they came, or their beginning."""
        self.code = 0
        """Exit code as a shell reports it: above 128 a signal."""
        self.is_overdue = False
        """Whether it was ended at its deadline."""

    def add(self, chunk: bytes) -> None:
        if self._file is None:
            self.content += self.keep(chunk)
        else:
            self._file.write(self.keep(chunk))

    @property
    def text(self) -> str:
        """The output for a reader, with a note about dropped bytes."""
        text = self.content.decode("utf-8", "replace").rstrip("\n")
        if not self.num_dropped:
            return text
        return f"{text}\n[{self.num_dropped} further bytes were not kept]"
