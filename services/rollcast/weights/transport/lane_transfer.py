"""How the bytes of a version travel over one lane: rank r's rows of every bucket, piece by piece, then the trailer.

    root        its packed rows --(copied to the group's device)--> broadcast
    receivers   broadcast --> straight into the whole version where the piece lies in one stretch of it, else through
                a scratch piece

Where a base is given, before every piece its number of bytes is sent: of its changes since the base, which receivers
write into the base that they hold, or the piece's own size where it comes whole.

The trailer is (incarnation, step, checksum) of what was sent: bytes of another version are told from the right ones. It
is sent only where the buffers still hold that version when the last piece has been read. On either side at most two
pieces are on the device beyond the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from rollcast.weights.plan.manifest import DTYPE_BYTES, PIECE_BYTES, BucketSpec
from rollcast.weights.plan.shards import shard_segments
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.changes import apply_changes
from rollcast.weights.transport.checksum import ChecksumBeside, signed
from rollcast.weights.transport.process_group import GroupError, WeightGroup
from rollcast.weights.transport.turns import LaneTurns
from rollcast.wire.version import PolicyVersion

WORD = 8
LEAST_PIECE = 1 << 20
"""Smaller ones cost more in calls than in bytes."""
TRAILER_BYTES = 3 * WORD
Changes = Callable[[int, slice], torch.Tensor | None]
"""Given a bucket and the range of a piece in it: what `pack_changes` makes of it; None = it comes whole."""


def send(group: WeightGroup, shard: Snapshot, version: PolicyVersion, changes: Changes | None = None) -> None:
    """At the lane's root: `shard` holds its rows of `version`; `changes`: those of a piece, None = all come whole.

    Raises GroupError: also where `shard` was written to meanwhile.
    """
    if shard.version != version:
        raise GroupError(f"version {version} was asked for, {shard.version} is staged")
    known = shard.checksum if changes is None and group.device.type == "cpu" else None
    with ChecksumBeside(group.device) as checksum:
        for index, (start, end) in pieces_of(shard, group.address.num_lanes):
            piece = shard.buffers[index][start:end]
            if changes is not None:
                changed = changes(index, slice(start, end))
                piece = piece if changed is None else changed
                _tell(group, [piece.numel()])
            if piece.numel():
                piece = piece.to(group.device)
                if known is None:
                    checksum.add(piece)
                group.broadcast(piece)
        found = checksum.wait() if known is None else known
    if shard.version != version:
        raise GroupError(f"version {version} was overwritten by {shard.version} while it was sent")
    _tell(group, [*version, found])


def receive(
    group: WeightGroup,
    whole: Snapshot,
    version: PolicyVersion,
    *,
    is_base: bool = False,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """At a receiver: fill the rows of `whole` that this lane carries. `is_base`: it holds the base that was given.

    `turn`: entered for every piece, and for the trailer. Raises GroupError: what came is not `version`.
    """
    lane, num_lanes = group.address.lane, group.address.num_lanes
    with ChecksumBeside(group.device) as checksum:
        for bucket, buffer in zip(whole.specs, whole.buffers, strict=True):
            segments, item_bytes = shard_segments(bucket, lane, num_lanes), DTYPE_BYTES[bucket.tensors[0].dtype]
            for start, end in _pieces(sum(length for _, length in segments), num_lanes):
                stretches = [buffer[place] for place in _stretches(segments, start, end)]
                with turn():
                    size = _heard(group, 1)[0] if is_base else end - start
                    if not 0 <= size <= end - start:
                        raise GroupError(f"version {version}: lane {lane} announced {size} bytes of {end - start}")
                    straight = len(stretches) == 1 and size == end - start and _takes(stretches[0], group)
                    if not straight:
                        checksum.wait()  # of what the scratch piece still holds
                    piece = stretches[0] if straight else group.scratch.of(size)
                    if size:
                        group.broadcast(piece)
                if size:
                    checksum.add(piece)
                if size < end - start:
                    apply_changes(piece, stretches, item_bytes)
                elif not straight:
                    for stretch, part in zip(
                        stretches, torch.split(piece, [s.numel() for s in stretches]), strict=True
                    ):
                        stretch.copy_(part)
        found = checksum.wait()
    with turn():
        incarnation, step, told = _heard(group, 3)
    if (incarnation, step) != version:
        raise GroupError(f"version {version} was announced, {incarnation}.{step} came over lane {lane}")
    if told != signed(found):
        raise GroupError(f"version {version}: the checksum of what came over lane {lane} is wrong")


def turns_of(specs: Sequence[BucketSpec], num_lanes: int) -> LaneTurns:
    """Of a version's pieces and trailers, at one receiver."""

    def count(lane: int) -> int:
        sizes = (sum(length for _, length in shard_segments(bucket, lane, num_lanes)) for bucket in specs)
        return 1 + sum(len(list(_pieces(size, num_lanes))) for size in sizes)

    return LaneTurns([count(lane) for lane in range(num_lanes)])


def pieces_of(shard: Snapshot, num_lanes: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(bucket, range of its bytes) of every piece, in the order in which they travel."""
    for index, buffer in enumerate(shard.buffers):
        for piece in _pieces(buffer.numel(), num_lanes):
            yield index, piece


def piece_bytes(num_lanes: int) -> int:
    """What is on its way at once over all lanes together is one piece of PIECE_BYTES."""
    return max(LEAST_PIECE, PIECE_BYTES // num_lanes // LEAST_PIECE * LEAST_PIECE)


def pieces_at_once(num_lanes: int) -> int:
    """Of how many groups a rank may hold a piece: together they are no more than one of PIECE_BYTES."""
    return max(1, PIECE_BYTES // piece_bytes(num_lanes))


def _tell(group: WeightGroup, numbers: list[int]) -> None:
    group.broadcast(torch.tensor([signed(n) for n in numbers], device=group.device).view(torch.uint8))


def _heard(group: WeightGroup, count: int) -> list[int]:
    numbers = torch.empty(count * WORD, dtype=torch.uint8, device=group.device)
    group.broadcast(numbers)
    return [int(number) for number in numbers.view(torch.int64)]


def _takes(stretch: torch.Tensor, group: WeightGroup) -> bool:
    """Whether bytes may arrive there: on the group's device, and where a GPU's checksum reads whole words."""
    return stretch.device == group.device and stretch.storage_offset() % WORD == 0


def _pieces(num_bytes: int, num_lanes: int) -> Iterator[tuple[int, int]]:
    size = piece_bytes(num_lanes)
    for start in range(0, num_bytes, size):
        yield start, min(start + size, num_bytes)


def _stretches(segments: list[tuple[int, int]], start: int, end: int) -> Iterator[slice]:
    """Places in the whole bucket of the packed bytes [start, end)."""
    packed = 0
    for offset, length in segments:
        first, last = max(start, packed), min(end, packed + length)
        if first < last:
            yield slice(offset + first - packed, offset + last - packed)
        packed += length
