"""Objects that claim more than they may: a reader takes neither the memory nor the time."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash

from rollcast.connections.object_files import ObjectFolder
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.stored_object import (
    FrameReader,
    StoredObject,
    write_object,
)
from rollcast.weights.transport.word_code import FRAME_BYTES, decode

BUCKETS = plan_buckets([TensorSpec("w", "bfloat16", (4 * FRAME_BYTES // 2,))], 64 << 20)
"""Four frames."""


def written_version(folder: ObjectFolder, seed: int = 0) -> tuple[Snapshot, StoredObject]:
    rows = Snapshot.on(torch.device("cpu"), BUCKETS)
    words = np.random.default_rng(seed).integers(0, 256, rows.buffers[0].numel(), np.uint8)
    rows.buffers[0].copy_(torch.from_numpy(words))
    return rows, write_object(folder, "1.0-0.whole", rows, None, 0)


def reader_of(folder: ObjectFolder) -> FrameReader:
    return FrameReader(folder, Snapshot.on(torch.device("cpu"), BUCKETS), 1, lambda: False)


def test_an_index_with_a_frame_of_any_length_is_refused(tmp_path: Path) -> None:
    """Its checksum is right, as one who may write to the store can make it."""
    folder = ObjectFolder(tmp_path)
    _, stored = written_version(folder)
    path = tmp_path / stored.name
    data = bytearray(path.read_bytes())
    index_at = len(data) - stored.index_bytes
    data[index_at : index_at + 8] = struct.pack("<Q", 1 << 40)
    path.write_bytes(data)
    forged = StoredObject(
        stored.name,
        stored.num_bytes,
        stored.index_bytes,
        xxhash.xxh3_64_intdigest(bytes(data[index_at:])),
        stored.rows_checksum,
    )
    with pytest.raises(GroupError, match=r"a frame of 1\.0-0\.whole is too long"):
        list(reader_of(folder).frames(0, forged))


def test_a_frame_of_endless_streams_takes_no_memory() -> None:
    """Each deflates to nearly nothing."""
    words = np.zeros(FRAME_BYTES // 2, np.uint16)
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    code = deflater.compress(bytes(len(words))) + deflater.flush()
    stream = struct.pack("<QQ", len(words), len(code)) + code
    frame = struct.pack("<QB", 0, 1) + 200 * stream
    tracemalloc.start()
    try:
        with pytest.raises(GroupError):
            decode(frame, words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Planes and gaps, the positions at 8 bytes a word several times over; all streams have 800 MiB.
    assert peak < 25 * FRAME_BYTES, peak


def test_after_a_damaged_frame_no_more_is_read(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path)
    _, stored = written_version(folder)
    reader = reader_of(folder)
    frames = [frame for _ in range(30) for frame in reader.frames(0, stored)]
    path = tmp_path / stored.name
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    num_read = 0
    read = folder.read

    def counted_read(name: str, start: int, end: int) -> bytes:
        nonlocal num_read
        num_read += 1
        return read(name, start, end)

    vars(folder)["read"] = counted_read
    with pytest.raises(GroupError, match="is damaged"):
        reader.fill(stored, frames)
    # 60 batches; four threads, and what they began until the first had failed.
    assert num_read < 30
