"""The devices that a run is planned for."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DeviceKind = Literal["gpu", "cpu"]
GB = 10**9
ASK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, of which each process has one; or a machine without, whose memory all processes share."""

    kind: DeviceKind
    num_bytes: int

    @property
    def in_words(self) -> str:
        return f"{'a GPU' if self.kind == 'gpu' else 'this machine'} has {gigabytes(self.num_bytes)}"


def gigabytes(num_bytes: float) -> str:
    """10^9 bytes, as GPUs are named by."""
    return f"{num_bytes / GB:.1f} GB"


def this_machine() -> Device:
    """The smallest of its GPUs, or its main memory where it has none."""
    return smallest_gpu() or Device("cpu", _main_memory())


def smallest_gpu() -> Device | None:
    """As the driver says; None where there is no driver or it does not answer."""
    sizes = gpu_sizes()
    return Device("gpu", min(sizes)) if sizes else None


def gpu_sizes() -> list[int]:
    """Bytes of each of this machine's GPUs; empty where there is no driver or it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(  # noqa: S603  (a constant)
            command, capture_output=True, text=True, timeout=ASK_SECONDS, check=True
        ).stdout
        return [int(line) << 20 for line in said.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def _main_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise AssertionError("/proc/meminfo names no MemTotal")
