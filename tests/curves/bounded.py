"""Reads a file in a process of bounded memory and CPU time, and tells what became of it.

python -m tests.curves.bounded FILE..      one line each: a curve, or the sentence of its refusal
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.columns import Columns
from testkit.formats.history import read_history

MEMORY_BYTES = 3 << 30
"""Of addresses: numpy and its threads take 1 GiB of them before they read anything."""
CPU_SECONDS = 120
"""A busy machine with slow cores takes a quarter of it for the largest sound file."""
TIMEOUT_SECONDS = 600.0
"""One that waits takes no CPU time."""
MAX_SENTENCE_CHARS = 2_000
CURVE = "a curve of"


def main(*paths: str) -> None:
    for path in paths:
        try:
            history = read_history(path, Columns(), None)
        except UserError as error:
            print(error)
        else:
            print(CURVE, len(history.evaluations))


def outcomes(*paths: Path) -> list[str]:
    """What became of each file: fails where one took too much, ended in a traceback or in more than a sentence."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.curves.bounded", *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        preexec_fn=_limit,
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PATH": ""},
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), done.stdout[:2000]
    assert max(map(len, lines)) < MAX_SENTENCE_CHARS
    return lines


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
