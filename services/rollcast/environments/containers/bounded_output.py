"""The beginning of an output that may have no end."""


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
