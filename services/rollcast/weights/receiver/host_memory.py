"""Host memory that the workers of one generator share: a version is staged once, each copies its
slice.

It has no name in any file system, so that nothing is left behind and a small /dev/shm does not
limit it. Other processes of the same user open it below /proc of its owner, and it is freed when
the last of them ends.
"""

import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import torch
from google.protobuf.message import DecodeError

from rollcast.telemetry.host_memory import free_bytes
from rollcast.weights.plan.manifest import BucketSpec, ManifestError, manifest_from_proto
from rollcast.weights.plan.page_locked import lock_pages
from rollcast.weights.plan.snapshot import Snapshot, memory_bytes
from rollcast.weights.transport.errors import NoRoomError
from rollcast.wire import weights_pb2


class SharedSnapshot(Snapshot):
    """Memory that several processes map. Each locks the pages of its own mapping when it first
    reads a version.

    Earlier would be too early: locking takes all pages (seconds for a large model), and the first
    piece of a version has a deadline. The first version of a generator is applied before it samples
    anything, so this delays no request. After a broken epoch new memory may be locked in a pause.
    """

    _is_first_use = True

    def views(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Like `Snapshot.views`; the first call locks the pages."""
        if self._is_first_use:
            self._is_first_use = False
            lock_pages(self)
        return super().views()


def in_host_memory(specs: tuple[BucketSpec, ...]) -> SharedSnapshot:
    """New memory of this process.

    Others find it under its `path` as long as it is kept. Raises NoRoomError.
    """
    size = memory_bytes(specs)
    free = free_bytes()
    # Its pages are taken as bytes arrive, and the kernel would kill a process if there were too
    # few.
    if size > free:
        raise NoRoomError(
            f"weights.stage = host: a version of {size / 1e9:.1f} GB does not fit into the "
            f"{free / 1e9:.1f} GB of host memory that are free; give the generator's machine or "
            "pod more, or set it to device"
        )
    file = os.memfd_create("rollcast-weights")
    os.ftruncate(file, size)
    snapshot = attach(f"/proc/{os.getpid()}/fd/{file}", specs)
    weakref.finalize(snapshot, os.close, file)
    return snapshot


def attach(path: str, specs: tuple[BucketSpec, ...]) -> SharedSnapshot:
    """The owner's memory, for reading. Raises FileNotFoundError if it does not exist any more."""
    size = Path(path).stat().st_size
    assert size == memory_bytes(specs), (size, specs)
    return SharedSnapshot(
        specs, torch.from_file(path, shared=True, size=size, dtype=torch.uint8), path
    )


def identity(path: str) -> int:
    """Identifies the memory, because other memory may later appear under the same path."""
    return Path(path).stat().st_ino


class SharedVersion:
    """The end of a worker that has no receiver: reads the version
    that another worker has staged.
    """

    def __init__(self) -> None:
        self._specs: tuple[BucketSpec, ...] = ()
        self._attached: SharedSnapshot | None = None
        self._identity = 0

    def announce(self, publish: bytes) -> None:
        """Learn from a `Publish` message where each tensor will be.

        Takes too long for the engine's pause.
        """
        try:
            self._specs = manifest_from_proto(
                weights_pb2.Publish.FromString(publish).manifest
            ).buckets
        except (
            DecodeError,
            ManifestError,
        ):  # the worker with the receiver reports it, and nothing is applied
            self._specs = ()

    def views(self, path: str) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) of the version staged at `path`."""
        file_identity = identity(path)
        # The owner keeps its memory from version to version: mapping it again would lengthen the
        # pause.
        if (
            self._attached is None
            or self._identity != file_identity
            or self._attached.specs != self._specs
        ):
            self._attached = attach(path, self._specs)
            self._identity = file_identity
        return self._attached.views()
