"""An object of the store: one rank's rows of a version, in frames, whole or as changes.

    frame, frame, ... | index: length and XXH3 of each frame

A frame covers FRAME_BYTES of the rank's packed rows of one bucket, so both ends know its place. The
index is read first, and each frame is verified before a byte of it is used. Who reads the object
knows its length, the index's checksum and that of the rows from the message that names it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import xxhash

from rollcast.connections.object_files import ObjectFolder
from rollcast.weights.plan.manifest import DTYPE_BYTES, BucketSpec
from rollcast.weights.plan.shards import shard_segments
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.checksum import ProcessorChecksum
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.lane_transfer import stretches
from rollcast.weights.transport.word_code import FRAME_BYTES, WORDS, Words, decode, encode
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

_INDEX = np.dtype([("length", "<u8"), ("checksum", "<u8")])
_NAME = re.compile(r"[\w.-]{1,200}")


@dataclass(frozen=True)
class StoredObject:
    """The message of this name."""

    name: str
    num_bytes: int
    index_bytes: int
    index_checksum: int
    rows_checksum: int

    def to_proto(self) -> weights_pb2.StoredObject:
        return weights_pb2.StoredObject(
            name=self.name,
            num_bytes=self.num_bytes,
            index_bytes=self.index_bytes,
            index_checksum=self.index_checksum,
            rows_checksum=self.rows_checksum,
        )

    @classmethod
    def from_proto(cls, message: weights_pb2.StoredObject) -> "StoredObject":
        """Raises GroupError."""
        is_name = _NAME.fullmatch(message.name) and ".." not in message.name
        if not is_name or message.index_bytes > message.num_bytes:
            raise GroupError(f"a stored object contradicts itself: {message.name[:200]!r}")
        return cls(
            message.name,
            message.num_bytes,
            message.index_bytes,
            message.index_checksum,
            message.rows_checksum,
        )


@dataclass(frozen=True)
class StoredVersion:
    """One version whole, or what changed since `base`: an object of each rank."""

    version: PolicyVersion
    base: PolicyVersion | None
    objects: tuple[StoredObject, ...]

    @property
    def num_bytes(self) -> int:
        return sum(stored.num_bytes for stored in self.objects)

    def to_proto(self) -> weights_pb2.StoredVersion:
        return weights_pb2.StoredVersion(
            version=self.version.to_proto(),
            base=None if self.base is None else self.base.to_proto(),
            objects=[stored.to_proto() for stored in self.objects],
        )

    @classmethod
    def from_proto(cls, message: weights_pb2.StoredVersion) -> "StoredVersion":
        """Raises GroupError."""
        return cls(
            PolicyVersion.from_proto(message.version),
            PolicyVersion.from_proto(message.base) if message.HasField("base") else None,
            tuple(StoredObject.from_proto(stored) for stored in message.objects),
        )


def write_object(
    folder: ObjectFolder, name: str, rows: Snapshot, base: Snapshot | None, rows_checksum: int
) -> StoredObject:
    """Write a rank's rows, or what turns `base` into them. Raises OSError."""
    index: list[tuple[int, int]] = []
    with folder.create(name) as file:
        for number, spec in enumerate(rows.specs):
            for start in range(0, spec.num_bytes, FRAME_BYTES):
                part = slice(start, start + FRAME_BYTES)
                new = _words(rows.buffers[number][part], spec)
                old = None if base is None else _words(base.buffers[number][part], spec)
                frame = encode(new, old)
                file.write(frame)
                index.append((len(frame), xxhash.xxh3_64_intdigest(frame)))
        packed = np.array(index, _INDEX).tobytes()
        file.write(packed)
    num_bytes = sum(length for length, _ in index) + len(packed)
    index_checksum = xxhash.xxh3_64_intdigest(packed)
    return StoredObject(name, num_bytes, len(packed), index_checksum, rows_checksum)


@dataclass(frozen=True)
class Frame:
    """A frame's place in its object, and the stretches of the version that it fills."""

    start: int
    end: int
    checksum: int
    targets: Sequence[torch.Tensor]
    spec: BucketSpec


@dataclass(frozen=True)
class FrameReader:
    """Reads objects into a version in host memory."""

    folder: ObjectFolder
    staged: Snapshot
    num_ranks: int
    is_cancelled: Callable[[], bool]
    note_read: Callable[[int], None] = lambda num_bytes: None
    """Called by `fill` after each of its reads."""

    def fill(self, stored: StoredObject, frames: Sequence[Frame]) -> None:
        """Write the rows that the frames are of, which hold their base if they have one.

        Raises GroupError if the object is not as it was written, OSError if it cannot be read.
        """
        # Several at a time: inflating one takes about as long as fetching it.
        with ThreadPoolExecutor(4, "weight-pull") as threads:
            # One that fails cancels those that wait.
            for num_bytes in threads.map(partial(self._read_batch, stored), _batches(frames)):
                self.note_read(num_bytes)

    def verify(self, rank: int, stored: StoredObject) -> None:
        """Raises GroupError if the rank's rows are not those of the version."""
        checksum = ProcessorChecksum()
        for spec, buffer in zip(self.staged.specs, self.staged.buffers, strict=True):
            for offset, length in shard_segments(spec, rank, self.num_ranks):
                checksum.add(buffer[offset : offset + length])
        if checksum.value() != stored.rows_checksum:
            raise GroupError(f"the rows that {stored.name} makes are not those of its version")

    def frames(self, rank: int, stored: StoredObject) -> Iterator[Frame]:
        """The frames of a rank's object, by its index. Raises GroupError, OSError."""
        places = list(self._places(rank))
        if stored.index_bytes != len(places) * _INDEX.itemsize:
            raise GroupError(f"{stored.name} is not of this model")
        frames_end = stored.num_bytes - stored.index_bytes
        packed = self.folder.read(stored.name, frames_end, stored.num_bytes)
        if xxhash.xxh3_64_intdigest(packed) != stored.index_checksum:
            raise GroupError(f"the index of {stored.name} is damaged")
        index = np.frombuffer(packed, _INDEX)
        # Where every byte changed, each takes two: a gap and a difference.
        if index["length"].max(initial=0) > 2 * FRAME_BYTES + 1024:
            raise GroupError(f"a frame of {stored.name} is too long")
        ends = [0, *np.cumsum(index["length"]).tolist()]
        for (start, end), checksum, (targets, spec) in zip(
            pairwise(ends), index["checksum"].tolist(), places, strict=True
        ):
            yield Frame(start, end, checksum, targets, spec)

    def _places(self, rank: int) -> Iterator[tuple[Sequence[torch.Tensor], BucketSpec]]:
        for spec, buffer in zip(self.staged.specs, self.staged.buffers, strict=True):
            segments = shard_segments(spec, rank, self.num_ranks)
            packed_bytes = sum(length for _, length in segments)
            for start in range(0, packed_bytes, FRAME_BYTES):
                end = min(start + FRAME_BYTES, packed_bytes)
                yield [buffer[place] for place in stretches(segments, start, end)], spec

    def _read_batch(self, stored: StoredObject, batch: Sequence[Frame]) -> int:
        if self.is_cancelled():
            raise GroupError("abandoned")
        first = batch[0].start
        data = self.folder.read(stored.name, first, batch[-1].end)
        for frame in batch:
            code = data[frame.start - first : frame.end - first]
            if xxhash.xxh3_64_intdigest(code) != frame.checksum:
                raise GroupError(f"{stored.name} is damaged")
            if len(frame.targets) == 1:
                decode(code, _words(frame.targets[0], frame.spec))
                continue
            joined = torch.cat(list(frame.targets))
            decode(code, _words(joined, frame.spec))
            sizes = [target.numel() for target in frame.targets]
            for target, part in zip(frame.targets, torch.split(joined, sizes), strict=True):
                target.copy_(part)
        return len(data)


def _batches(frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    """Short frames are read together, so that the way to the store is not paid for each."""
    batch: list[Frame] = []
    for frame in frames:
        if batch and frame.end - batch[0].start > 2 * FRAME_BYTES:
            yield batch
            batch = []
        batch.append(frame)
    if batch:
        yield batch


def _words(buffer: torch.Tensor, spec: BucketSpec) -> Words:
    return buffer.numpy().view(WORDS[DTYPE_BYTES[spec.tensors[0].dtype]])
