"""The tool `shell`: commands in the folder of the environment's process, with what its profile
allows.
"""

import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import IO

from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.overdue import OverdueAnswer
from rollcast.environments.tools.answers import command_answer
from rollcast.processes.tree import kill_group

MAX_OUTPUT_BYTES = 1 << 20
"""Output of one command that is kept; the rest is read and dropped. The answer to the model is cut
further."""


def shell_within(call_seconds: float) -> Callable[[str], str]:
    """The tool `shell` for calls with this deadline."""

    def shell(command: str) -> str:
        """Run a command in a shell. Its files are there in the next call; processes that still run are ended.

        Args:
            command: The command, as for `sh -c`.

        Returns:
            Its output, and its exit code if that is not 0.
        """  # noqa: E501  # the model reads it
        # A command may take this part of a call's deadline. Then it is ended, and the answer still
        # has its output.
        return _run(command, call_seconds * 0.9)

    return shell


def _run(command: str, seconds: float) -> str:
    try:
        process = subprocess.Popen(  # noqa: S603  # this is the tool
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Processes that the command leaves are killed by their group.
            process_group=0,
        )
    except (OSError, ValueError) as error:  # too long for one argument, or a NUL in it
        return f"Error: the command cannot be run: {error}"
    assert process.stdout is not None
    with process.stdout as output:
        text, has_ended = _read(process, output, time.monotonic() + seconds)
    kill_group(process.pid)
    code = process.wait()
    if not has_ended:
        return OverdueAnswer(command_answer(text, code, seconds))
    return command_answer(text, code)


def _read(process: subprocess.Popen[bytes], output: IO[bytes], deadline: float) -> tuple[str, bool]:
    """The output, and whether the command ended before the deadline."""
    kept_output = CommandOutput(MAX_OUTPUT_BYTES)
    has_ended = False
    while not has_ended and time.monotonic() < deadline:
        # Looked at first: its last output is still read below
        has_ended = process.poll() is not None
        # How often it is checked whether the command has ended while something that it started
        # keeps its output open
        while select.select([output], [], [], 0 if has_ended else 0.05)[0]:
            # Bytes of one read of a pipe
            chunk = os.read(output.fileno(), 1 << 16)
            if not chunk:
                has_ended = _wait(process, deadline)
                break
            kept_output.add(chunk)
            if time.monotonic() > deadline:
                break
    return kept_output.text, has_ended


def _wait(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether a command that closed its output ended before the deadline."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True
