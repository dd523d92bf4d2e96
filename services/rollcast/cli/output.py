"""Standard output whose write errors are distinct from those of other files."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from rollcast.config.json_text import to_json
from rollcast.config.printable import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(OSError):
    """Standard output takes no more: the disk that it goes to is full, or fails."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # whoever read it has enough
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from error


def tell_output_apart() -> None:
    """Make standard output raise OutputError if it cannot be written, in whichever call that shows.

    A letter that its encoding lacks is written as a question mark.
    """
    stdout: TextIO | None = sys.stdout
    if stdout is None:  # closed by whoever started this process
        sys.stdout = io.TextIOWrapper(_Output(os.devnull, "wb"), encoding="utf-8", errors="replace")
        return
    if not isinstance(stdout, io.TextIOWrapper):
        return
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(stdout.fileno(), "wb", closefd=False)),
        encoding=stdout.encoding,
        errors="replace",
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )


def say(text: str) -> None:
    """Print prose. On a terminal its lines break between words; commands that are meant to be
    copied stay whole.

    Control characters, of names of files and columns, are shown as escapes.
    """
    text = printable(text)
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        text = "\n".join(
            textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
            for line in text.split("\n")
        )
    print(text, flush=True)  # the text may announce a wait that starts now


def echo_json(answer: Any, *, default: Callable[[Any], Any] | None = None) -> None:
    """Print what `--json` asks for. `default`: returns what JSON can hold for any other object."""
    print(to_json(answer, indent=1, default=default), flush=True)


def discard_output() -> None:
    """Drop the buffered output; otherwise the process would try to write it again as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
