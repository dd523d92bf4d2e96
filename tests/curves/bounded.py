"""Reads files in a process of bounded memory and CPU time, and reports what became of each.

    python -m tests.curves.bounded OUTPUT FILE..

One line of OUTPUT each: a curve, or the sentence of its refusal.

`Bounded` forks it of a process that has done its imports, which take longer than most of the files.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.forked_programs import ForkedPrograms
from testkit.formats.history import read_history

MEMORY_BYTES = 3 << 30
"""Of addresses: numpy and its threads take 1 GiB of them before they read anything."""
CPU_SECONDS = 120
"""A busy machine with slow cores takes a quarter of it for the largest sound file."""
TIMEOUT_SECONDS = 600.0
"""One that waits takes no CPU time."""
MAX_SENTENCE_CHARS = 2_000
CURVE = "a curve of"


def main() -> None:
    _limit()
    os.environ["PATH"] = ""  # a reader starts no program
    with open(sys.argv[1], "w") as output:
        for path in sys.argv[2:]:
            try:
                history = read_history(path, Columns(), None)
            except UserError as error:
                print(error, file=output)
            else:
                print(CURVE, len(history.evaluations), file=output)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


class Bounded:
    """What the processes are forked of, and the folder of their output."""

    def __init__(self, programs: ForkedPrograms, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._num_started = 0

    def outcomes(self, *paths: Path) -> list[str]:
        """What became of each file: fails if one took too much, ended in a traceback or in more
        than a sentence.
        """
        self._num_started += 1
        output = self._folder / f"{self._num_started}.txt"
        log = output.with_suffix(".log")
        process = self._programs.start(
            "tests.curves.bounded", list(map(str, (output, *paths))), log
        )
        code = process.wait(TIMEOUT_SECONDS)
        assert code == 0, f"{code}: {log.read_text()[-2000:]}"
        text = output.read_text()
        lines = text.splitlines()
        assert len(lines) == len(paths), text[:2000]
        assert max(map(len, lines)) < MAX_SENTENCE_CHARS
        return lines


if __name__ == "__main__":
    main()
