"""One of our own modules as a process that answers a request: its memory goes away with it."""

import subprocess
import sys


def run_module(
    module: str, request: str, timeout_seconds: float
) -> subprocess.CompletedProcess[str]:
    """The ended process, which read `request` from standard input.

    Raises OSError and subprocess.TimeoutExpired.
    """
    command = [sys.executable, "-m", module]
    return subprocess.run(  # noqa: S603  # our own program
        command,
        input=request,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def last_errors(process: subprocess.CompletedProcess[str]) -> str:
    """The end of its standard error, in one line of at most 300 characters."""
    return " ".join(process.stderr.split())[-300:]
