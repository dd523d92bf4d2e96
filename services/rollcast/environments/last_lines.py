"""The last lines that a program wrote, in one line: the message of an exception and the place that
raised it.
"""

from collections import deque

MAX_LINE_CHARACTERS = 300


class LastLines:
    """Takes the pieces that are read of a pipe; holds a few lines of bounded length, however much
    is written.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=5)
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """The next bytes of the output."""
        *finished, rest = (self._rest + chunk).split(b"\n")
        self._lines.extend(map(_readable, finished))
        # A program may print without a line break.
        self._rest = rest[-MAX_LINE_CHARACTERS:]

    def end(self) -> None:
        """The output is over: its last line may lack a line break."""
        self.add(b"\n")

    def in_one_line(self) -> str:
        """Empty = nothing was written."""
        return " | ".join(line for line in list(self._lines) if line)


def _readable(line: bytes) -> str:
    return " ".join(line[-MAX_LINE_CHARACTERS:].decode("utf-8", "replace").split())
