"""The devices that a run is planned for."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["gpu", "cpu"]
GB = 10**9


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, one for each process, or a machine without GPUs, whose memory all processes share."""

    kind: DeviceKind
    num_bytes: int

    @property
    def in_words(self) -> str:
        return (
            f"{'a GPU' if self.kind == 'gpu' else 'this machine'} has {gigabytes(self.num_bytes)}"
        )


def gigabytes(num_bytes: float) -> str:
    """Text in units of 10^9 bytes, as GPU sizes are given."""
    return f"{num_bytes / GB:.1f} GB"


def this_machine() -> Device:
    """The smallest of its GPUs, or its main memory if it has no GPU."""
    main_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return smallest_gpu() or Device("cpu", main_memory)


def smallest_gpu() -> Device | None:
    """The smallest that the driver reports; None if there is no driver or it does not answer."""
    sizes = gpu_sizes()
    return Device("gpu", min(sizes)) if sizes else None


def gpu_sizes() -> list[int]:
    """Bytes of each of this machine's GPUs; empty if there is no driver or it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        driver_output = subprocess.run(  # noqa: S603  (a constant)
            # How long nvidia-smi may take to answer
            command,
            capture_output=True,
            text=True,
            timeout=10.0,
            check=True,
        ).stdout
        return [int(line) << 20 for line in driver_output.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
