"""A frame: the words of one stretch of a version as few bytes, whole or as what changed since
another version, exactly.

    whole      byte planes of the words: all first bytes, all second bytes, ...
    changes    gaps between the changed words, then byte planes of the differences

At the learning rates of reinforcement learning few bfloat16 weights change in a step, and most of
those by one place. So a difference is counted in words, as zigzag: 0, -1, 1, -2 become 0, 1, 2, 3.
Gaps are nearly all below 255, which is one byte; each 255 adds itself to the gap that follows.
Planes and gaps are deflated if that makes them shorter.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from rollcast.weights.transport.errors import GroupError

Words = NDArray[np.unsignedinteger]
Bytes = NDArray[np.uint8]

WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Compared as integers, by their size in bytes: a NaN equals itself, and 0 differs from -0."""
FRAME_BYTES = 8 << 20
"""Bytes of the version in one frame. Positions of changes take eight bytes each while they are
computed."""
MAX_GAP_BYTE = int(np.iinfo(np.uint8).max)
_HEAD = struct.Struct("<QB")
"""Number of changes, and whether there is a base."""
_STREAM = struct.Struct("<QQ")
"""Bytes of a stream, and of its code; equal = it is not deflated."""


def encode(new: Words, base: Words | None) -> bytes:
    """A frame of `new`, or of what turns `base` into it."""
    if base is None:
        return _pack(0, False, _planes(new))
    differences = _zigzag(new - base)
    positions = np.flatnonzero(differences)
    gaps = np.diff(positions, prepend=-1) - 1
    # Every difference is at least 1.
    return _pack(len(positions), True, [_gap_bytes(gaps), *_planes(differences[positions] - 1)])


def decode(frame: bytes, words: Words) -> None:
    """Write the frame into `words`, which hold its base if it has one. Raises GroupError."""
    try:
        num_changes, has_base = _HEAD.unpack_from(frame)
        # Gaps and planes, each of at most a byte for a word, whatever the frame says.
        all_streams = _streams(memoryview(frame)[_HEAD.size :], len(words))
        streams = list(islice(all_streams, 1 + words.itemsize))
    except (struct.error, zlib.error, ValueError) as error:
        raise GroupError(f"a frame cannot be read: {error}") from error
    if not has_base:
        words[:] = _join(streams, len(words), words.dtype)
        return
    positions = _positions(streams[0]) if streams else np.zeros(0, np.int64)
    is_inside = not len(positions) or positions[-1] < len(words)
    if len(positions) != num_changes or not is_inside:
        raise GroupError("a frame's changes are not in its stretch")
    words[positions] += _unzigzag(_join(streams[1:], num_changes, words.dtype) + 1)


def _zigzag(differences: Words) -> Words:
    signed = differences.view(f"i{differences.itemsize}")
    return ((signed << 1) ^ (signed >> (8 * signed.itemsize - 1))).view(differences.dtype)


def _unzigzag(values: Words) -> Words:
    return ((values >> 1) ^ -(values & 1)).view(values.dtype)


def _gap_bytes(gaps: NDArray[np.int64]) -> Bytes:
    # Nearly always so if more than a few per cent of the words changed.
    if not len(gaps) or gaps.max() < MAX_GAP_BYTE:
        return gaps.astype(np.uint8)
    long_gaps = gaps // MAX_GAP_BYTE
    coded = np.full(len(gaps) + int(long_gaps.sum()), MAX_GAP_BYTE, np.uint8)
    coded[np.cumsum(long_gaps + 1) - 1] = gaps % MAX_GAP_BYTE
    return coded


def _positions(coded: Bytes) -> NDArray[np.int64]:
    ends = np.flatnonzero(coded != MAX_GAP_BYTE)
    return np.cumsum(coded, dtype=np.int64)[ends] + np.arange(len(ends))


def _planes(words: Words) -> list[Bytes]:
    """All first bytes, all second bytes, ..."""
    planes = words.view(np.uint8).reshape(len(words), words.itemsize).T
    return [np.ascontiguousarray(plane) for plane in planes]


def _join(planes: list[Bytes], length: int, dtype: np.dtype[np.unsignedinteger]) -> Words:
    if [len(plane) for plane in planes] != [length] * dtype.itemsize:
        raise GroupError("a frame has not the bytes of its words")
    return np.ascontiguousarray(np.stack(planes, axis=1)).view(dtype).reshape(length)


def _pack(num_changes: int, has_base: bool, streams: list[Bytes]) -> bytes:
    parts = [_HEAD.pack(num_changes, has_base)]
    for stream in streams:
        coded = _deflate(stream)
        parts += [_STREAM.pack(stream.nbytes, len(coded)), coded]
    return b"".join(parts)


def _deflate(stream: Bytes) -> bytes:
    data = stream.tobytes()
    # Low bytes of weights are noise: a sample shows it without deflating all of them.
    sample = data[: 1 << 16]
    if len(_deflated(sample)) >= 0.95 * len(sample):
        return data
    coded = _deflated(data)
    return coded if len(coded) < len(data) else data


def _deflated(data: bytes) -> bytes:
    # Runs and Huffman codes alone: shorter than with a search for longer matches, and faster.
    deflater = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_RLE)
    return deflater.compress(data) + deflater.flush()


def _streams(packed: memoryview, max_bytes: int) -> Iterator[Bytes]:
    """Raises ValueError if one has more than `max_bytes`."""
    while packed:
        num_bytes, num_coded_bytes = _STREAM.unpack_from(packed)
        coded = packed[_STREAM.size : _STREAM.size + num_coded_bytes]
        if num_bytes > max_bytes or len(coded) != num_coded_bytes:
            raise ValueError("a stream is too long")
        if num_coded_bytes == num_bytes:
            yield np.frombuffer(coded, np.uint8)
        else:
            inflated = zlib.decompressobj(-15).decompress(coded, num_bytes + 1)
            if len(inflated) != num_bytes:
                raise ValueError("a stream is not as long as it should be")
            yield np.frombuffer(inflated, np.uint8)
        packed = packed[_STREAM.size + num_coded_bytes :]
