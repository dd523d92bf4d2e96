"""Pulls versions from the store into host memory, on a thread of its own.

    held version --changes--> version      if that takes fewer bytes
    nothing held --anchor, changes--> version

Changes are applied to the memory that the version before was staged in. So after a failure in the
middle nothing is held, and the next pull begins with an anchor.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rollcast.connections.object_files import ObjectFolder
from rollcast.weights.plan.manifest import BucketSpec, Manifest
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.stored_object import FrameReader, StoredVersion
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion


@dataclass(frozen=True)
class PulledVersion:
    """A complete version, and the bytes that were read for it."""

    staged: Snapshot
    num_bytes: int


class StorePull:
    """`begin` and `cancel` are called by one thread and return immediately.

    A read that never returns holds the next pull as well. Then `num_bytes` does not grow, and the
    caller reports the failure.
    """

    def __init__(
        self, folder: ObjectFolder, make_memory: Callable[[tuple[BucketSpec, ...]], Snapshot]
    ) -> None:
        self._folder = folder
        self._make_memory = make_memory
        self._threads = ThreadPoolExecutor(1, "weight-store")
        self._cancelled = threading.Event()
        self._staged: Snapshot | None = None
        self._held_version: PolicyVersion | None = None
        """The version whose bytes the memory has."""
        self.num_bytes = 0
        """Bytes read in all pulls so far."""

    def begin(
        self, manifest: Manifest, stored: Sequence[weights_pb2.StoredVersion]
    ) -> "Future[PulledVersion]":
        """Start to pull. The former pull is cancelled, and ends before this one touches the memory.

        The result's errors: GroupError, NoRoomError.
        """
        self.cancel()
        self._cancelled = threading.Event()
        return self._threads.submit(self._pull, manifest, stored, self._cancelled)

    def cancel(self) -> None:
        """A running pull ends with an error, at the latest after the range that it reads."""
        self._cancelled.set()

    def _pull(
        self,
        manifest: Manifest,
        stored: Sequence[weights_pb2.StoredVersion],
        cancelled: threading.Event,
    ) -> PulledVersion:
        staged = self._memory(manifest.buckets)
        try:
            steps = [StoredVersion.from_proto(message) for message in stored]
            path = shortest_path(steps, self._held_version, manifest.version)
            num_ranks = len(steps[-1].objects)
            if not num_ranks or any(len(step.objects) != num_ranks for step in path):
                raise GroupError("the objects of a version are not those of all ranks")
            reader = FrameReader(self._folder, staged, num_ranks, cancelled.is_set, self._note_read)
            for step in path:
                self._fill(reader, step)
            for rank, last in enumerate(steps[-1].objects):
                reader.verify(rank, last)
        except (GroupError, FileNotFoundError) as error:
            self._held_version = None
            raise GroupError(str(error)) from error
        except OSError as error:
            raise GroupError(f"the store cannot be read: {error}") from error
        self._held_version = manifest.version
        return PulledVersion(staged, _num_bytes(path))

    def _note_read(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes

    def _fill(self, reader: FrameReader, step: StoredVersion) -> None:
        frames = [list(reader.frames(rank, stored)) for rank, stored in enumerate(step.objects)]
        # Until here nothing was written: a store that does not answer costs no anchor.
        self._held_version = None
        for stored, frames_of_rank in zip(step.objects, frames, strict=True):
            reader.fill(stored, frames_of_rank)

    def _memory(self, specs: tuple[BucketSpec, ...]) -> Snapshot:
        if self._staged is None or self._staged.specs != specs:
            # Released first: there may be no room for two versions.
            self._staged = None
            self._held_version = None
            self._staged = self._make_memory(specs)
        return self._staged


def shortest_path(
    steps: Sequence[StoredVersion], held: PolicyVersion | None, target: PolicyVersion
) -> list[StoredVersion]:
    """The steps with the fewest bytes that lead to `target`. Raises GroupError: none do."""
    paths = [path for start in (held, None) if (path := _path(steps, start, target)) is not None]
    if not paths:
        raise GroupError(f"the named objects do not lead to version {target}")
    return min(paths, key=_num_bytes)


def _path(
    steps: Sequence[StoredVersion], start: PolicyVersion | None, target: PolicyVersion
) -> list[StoredVersion] | None:
    """The changes that follow `start`, or the last whole version with those that follow it."""
    path: list[StoredVersion] = []
    reached = start
    for step in steps:
        if start is None and step.base is None:
            path = [step]
            reached = step.version
        elif step.base is not None and step.base == reached:
            path.append(step)
            reached = step.version
    return path if reached == target else None


def _num_bytes(path: Sequence[StoredVersion]) -> int:
    return sum(step.num_bytes for step in path)
