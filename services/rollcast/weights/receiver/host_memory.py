"""Host memory that the workers of one generator share: a version is staged once, each copies its slice.

It has no name in any file system, so that nothing is left behind and no small /dev/shm limits it: the owner's process
shows it to the others of the same user below /proc, and it is gone when the last of them is.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import torch

from rollcast.telemetry.host_memory import free_bytes
from rollcast.weights.plan.manifest import BucketSpec
from rollcast.weights.plan.snapshot import Snapshot, memory_bytes
from rollcast.weights.transport.process_group import NoRoomError


class HostMemory:
    """The owner's end."""

    def snapshot(self, specs: tuple[BucketSpec, ...]) -> Snapshot:
        """New memory; its `path` is where the others find it for as long as the owner keeps it.

        Its pages are taken as bytes arrive. Where there were too few the kernel would end a process without a word, so
        it is asked before.
        """
        size, free = memory_bytes(specs), free_bytes()
        if size > free:
            raise NoRoomError(
                f"weights.stage = host: a version of {size / 1e9:.1f} GB does not fit into the {free / 1e9:.1f} GB of "
                "host memory that are free; give the generator's machine or pod more, or set it to device"
            )
        file = os.memfd_create("rollcast-weights")
        os.ftruncate(file, size)
        made = attach(f"/proc/{os.getpid()}/fd/{file}", specs)
        weakref.finalize(made, os.close, file)
        return made


def attach(path: str, specs: tuple[BucketSpec, ...]) -> Snapshot:
    """What the owner staged, or will stage. Raises FileNotFoundError where it is gone."""
    size = Path(path).stat().st_size
    assert size == memory_bytes(specs), (size, specs)
    return Snapshot(specs, torch.from_file(path, shared=True, size=size, dtype=torch.uint8), path)


def identity(path: str) -> int:
    """Of the memory: another one may come to stand under the same path."""
    return Path(path).stat().st_ino
