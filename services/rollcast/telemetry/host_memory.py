"""What the kernel tells of host memory: how much could still be taken, and whether it ended processes for want of it.

In a container both are those of its control group, where that can be seen.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def free_bytes(control_group: Path = CONTROL_GROUP, proc: Path = PROC) -> int:
    """What the processes here could take: of the machine, and of the control group where that has a limit."""
    free = _numbers(proc / "meminfo").get("MemAvailable:", 0) << 10
    limit = _text(control_group / "memory.max").strip()
    if limit.isdigit():
        given_back = _numbers(control_group / "memory.stat").get("inactive_file", 0)  # page cache
        used = int(_text(control_group / "memory.current").strip() or 0) - given_back
        free = min(free, max(0, int(limit) - used))
    return free


def kills(control_group: Path = CONTROL_GROUP, proc: Path = PROC) -> int:
    """How many processes the kernel has ended for want of memory; 0 where it does not tell."""
    of_group = _numbers(control_group / "memory.events")
    return of_group.get("oom_kill", _numbers(proc / "vmstat").get("oom_kill", 0))


def how_it_ended(code: int, kills_before: int) -> str:
    """Of a process, by its exit code (negative = a signal), in words; `kills_before`: when it still ran."""
    if code == -signal.SIGKILL and kills() > kills_before:
        return "killed by the kernel, which ran out of host memory"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _numbers(path: Path) -> dict[str, int]:
    """First word of a line -> the number behind it."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text() if os.access(path, os.R_OK) else ""
    except OSError:
        return ""
