"""Host memory by the kernel's own files: free bytes, and how many processes were killed because it
ran out.

In a container both are those of its control group, if that is visible.
"""

import os
import signal
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def free_bytes(control_group: Path = CONTROL_GROUP, proc: Path = PROC) -> int:
    """Bytes that processes here can still allocate, on this machine and within the control group's
    limit.
    """
    free = _numbers(proc / "meminfo").get("MemAvailable:", 0) << 10
    limit = _text(control_group / "memory.max").strip()
    if limit.isdigit():
        given_back = _numbers(control_group / "memory.stat").get("inactive_file", 0)  # page cache
        used = int(_text(control_group / "memory.current").strip() or 0) - given_back
        free = min(free, max(0, int(limit) - used))
    return free


def kills(control_group: Path = CONTROL_GROUP, proc: Path = PROC) -> int:
    """How many processes the kernel has killed because memory ran out; 0 if it does not report
    that.
    """
    of_group = _numbers(control_group / "memory.events")
    return of_group.get("oom_kill", _numbers(proc / "vmstat").get("oom_kill", 0))


def how_it_ended(code: int, kills_before: int) -> str:
    """How a process ended, in words.

    `code`: negative = a signal. `kills_before`: `kills()` while it still ran.
    """
    if code == -signal.SIGKILL and kills() > kills_before:
        return "killed by the kernel, which ran out of host memory"
    if code >= 0:
        return f"ended with exit code {code}"
    # Signals between SIGRTMIN and SIGRTMAX have no names
    names = {number.value: number.name for number in signal.Signals}
    return f"killed by {names.get(-code, f'signal {-code}')}"


def _numbers(path: Path) -> dict[str, int]:
    """First word of a line -> the number behind it."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text() if os.access(path, os.R_OK) else ""
    except OSError:
        return ""
