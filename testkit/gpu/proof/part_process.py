"""The process of a part, and the end of everything that it started.

A part may start processes in sessions of their own, and these may lose their parents. The kernel
gives such orphans to this process, so that all of them are found below it and ended by their ids,
however the part itself ended.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PROGRAM = (sys.executable, "-m", "testkit.gpu.parts")
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Limit:
    """When a part is ended."""

    seconds: float | None
    """None = never."""
    is_the_wholes: bool = False
    """The command's time is over then, which is not the part's fault."""


def run_part(name: str, limit: Limit, *, is_small: bool) -> dict[str, Any]:
    """Figures of a part, {"failed": why} or {"cut": why}, with the seconds that it took.

    One that failed or was cut also has the figures that it had reported before.
    """
    command = [*PROGRAM, name, *(["--small"] if is_small else [])]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, EndAllProcesses():
        output_file = Path(folder, "stdout")
        complaints = Path(folder, "stderr")
        with output_file.open("wb") as out, complaints.open("wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit.seconds)
        code = process.poll()
        reasons = complaints.read_text(errors="replace")
        figures = _parse_figures(output_file.read_text(errors="replace"))
    sys.stderr.write(reasons)
    seconds = time.monotonic() - started
    about = {"small": is_small, **figures, "seconds": round(seconds, 1)}
    if code is None and limit.is_the_wholes:
        return about | {"cut": f"{name} was ended after {seconds:.0f} s, when --minutes were over"}
    if code is None:
        assert limit.seconds is not None
        return about | {"failed": f"{name} took longer than {limit.seconds / 60:g} minutes"}
    if code != 0 or not figures:
        # Characters of a reason in the report
        reason = (reasons.strip().splitlines() or ["it said nothing"])[-1][:300]
        return about | {"failed": f"{name} ended with exit code {code}: {reason}"}
    return about


def _parse_figures(text: str) -> dict[str, Any]:
    """All lines that are JSON objects, as one."""
    figures: dict[str, Any] = {}
    for line in text.splitlines():
        with suppress(ValueError):
            if isinstance(record := json.loads(line), dict):
                figures |= record
    return figures


class EndAllProcesses:
    """A context at whose exit every process that was started below this one meanwhile is ended."""

    def __enter__(self) -> None:
        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("the kernel refused PR_SET_CHILD_SUBREAPER")
        self._earlier_pids = {child.pid for child in psutil.Process().children(recursive=True)}

    def __exit__(self, *_: object) -> None:
        # A process that was killed has ended by then, unless the kernel cannot end it
        deadline = time.monotonic() + 10.0
        # Again and again: a process may start another one while it is looked at.
        while (remaining_processes := self._started_since()) and time.monotonic() < deadline:
            for process in remaining_processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(remaining_processes, timeout=1.0)

    def _started_since(self) -> list[psutil.Process]:
        descendants = psutil.Process().children(recursive=True)
        return [child for child in descendants if child.pid not in self._earlier_pids]
