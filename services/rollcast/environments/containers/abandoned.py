"""Containers of generators that are gone.

A container ends with the generator that started it (`podman`). Those that were left although, after
a machine's sudden end for one, are removed by the next generator on it.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollcast.environments.containers.check import run_podman

LABEL = "rollcast.owner"
"""Label whose value is the identity of the process that started the container."""


def process_identity() -> str:
    """This process's number and the time at which it began."""
    return f"{os.getpid()}:{_start_time(os.getpid())}"


def is_gone(process: str) -> bool:
    """Whether the process of an identity has ended. Raises ValueError if it is not one."""
    pid, _, start_time = process.partition(":")
    return _start_time(int(pid)) != start_time


def remove_abandoned_containers(podman: Sequence[str]) -> int:
    """Remove containers whose process has ended; returns their number. Never raises."""
    try:
        listed = run_podman(
            [*podman, "ps", "--all", "--filter", f"label={LABEL}", "--format", "json"]
        )
        names = [record["Names"][0] for record in json.loads(listed) if _is_abandoned(record)]
        # Within a minute, however many there are
        if names:
            run_podman([*podman, "rm", "--force", "--volumes", "--time", "0", "--ignore", *names])
        return len(names)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return 0


def _is_abandoned(record: dict[str, Any]) -> bool:
    return is_gone(str(record["Labels"][LABEL]))


def _start_time(pid: int) -> str:
    """Start of a process in ticks since the machine's; empty = no process has this number."""
    try:
        # The name of the program, in parentheses, may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
