"""How the bytes of a version travel over one lane: rank r's rows of every bucket, piece by piece, then the trailer.

    root        its packed rows --(copied to the group's device)--> broadcast
    receivers   broadcast --> straight into the whole version if the piece is one stretch of it, else through a
                scratch piece

The trailer is (incarnation, step, checksum) of the sent bytes, so that a receiver detects bytes of another version. It
is sent only if the buffers still hold that version when the last piece has been read. On either side at most two
pieces are on the device beyond the version.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from rollcast.weights.plan.manifest import PIECE_BYTES, BucketSpec
from rollcast.weights.plan.shards import shard_segments
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.checksum import ChecksumBeside, signed
from rollcast.weights.transport.process_group import GroupError, WeightGroup
from rollcast.weights.transport.turns import LaneTurns
from rollcast.wire.version import PolicyVersion

WORD_BYTES = 8
MIN_PIECE_BYTES = 1 << 20
"""Smaller pieces cost more in calls than in bytes."""
TRAILER_WORDS = 3
TRAILER_BYTES = TRAILER_WORDS * WORD_BYTES


def send(group: WeightGroup, shard: Snapshot, version: PolicyVersion) -> None:
    """Send the rows of `version` that `shard` holds, then the trailer; called at the lane's root.

    Raises GroupError, also if `shard` was written to in the meantime.
    """
    if shard.version != version:
        raise GroupError(f"version {version} was asked for, {shard.version} is staged")
    # On a CPU the shard was summed up when it was staged, once for all groups that it is sent to.
    known = shard.checksum if group.device.type == "cpu" else None
    with ChecksumBeside(group.device) as checksum:
        for buffer in shard.buffers:
            for start, end in _pieces(buffer.numel(), group.address.num_lanes):
                piece = buffer[start:end].to(group.device)
                if known is None:
                    checksum.add(piece)
                group.broadcast(piece)
        total = checksum.wait() if known is None else known
    # Without the trailer no receiver accepts the pieces that were read while the next version was staged.
    if shard.version != version:
        raise GroupError(f"version {version} was overwritten by {shard.version} while it was sent")
    trailer = [signed(number) for number in (*version, total)]
    group.broadcast(torch.tensor(trailer, device=group.device).view(torch.uint8))


def receive(
    group: WeightGroup,
    whole: Snapshot,
    version: PolicyVersion,
    *,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Fill the rows of `whole` that this lane carries. `turn`: entered for every piece and the trailer.

    Raises GroupError, also if the received bytes are not those of `version`.
    """
    lane = group.address.lane
    num_lanes = group.address.num_lanes
    with ChecksumBeside(group.device) as checksum:
        for bucket, buffer in zip(whole.specs, whole.buffers, strict=True):
            segments = shard_segments(bucket, lane, num_lanes)
            for start, end in _pieces(sum(length for _, length in segments), num_lanes):
                stretches = [buffer[place] for place in _stretches(segments, start, end)]
                with turn():
                    _receive_piece(group, stretches, checksum)
        total = checksum.wait()
    with turn():
        incarnation, step, sent_total = _receive_trailer(group)
    if (incarnation, step) != version:
        raise GroupError(f"version {version} was announced, {incarnation}.{step} came over lane {lane}")
    if sent_total != signed(total):
        raise GroupError(f"version {version}: the checksum of the bytes from lane {lane} is wrong")


def turns_of(specs: Sequence[BucketSpec], num_lanes: int) -> LaneTurns:
    """The order in which one receiver takes a version's pieces and trailers."""

    def count(lane: int) -> int:
        sizes = (sum(length for _, length in shard_segments(bucket, lane, num_lanes)) for bucket in specs)
        return 1 + sum(len(list(_pieces(size, num_lanes))) for size in sizes)

    return LaneTurns([count(lane) for lane in range(num_lanes)])


def piece_bytes(num_lanes: int) -> int:
    """Size of a lane's piece: together the lanes have about PIECE_BYTES on their way."""
    return max(MIN_PIECE_BYTES, PIECE_BYTES // num_lanes // MIN_PIECE_BYTES * MIN_PIECE_BYTES)


def pieces_at_once(num_lanes: int) -> int:
    """How many groups may have a piece on a rank's device: together at most PIECE_BYTES."""
    return max(1, PIECE_BYTES // piece_bytes(num_lanes))


def _receive_piece(group: WeightGroup, stretches: list[torch.Tensor], checksum: ChecksumBeside) -> None:
    """Receive one piece into the uint8 stretches of the version that it consists of, in order."""
    if len(stretches) == 1 and _can_receive_into(stretches[0], group):
        group.broadcast(stretches[0])
        checksum.add(stretches[0])
        return
    sizes = [stretch.numel() for stretch in stretches]
    # The thread of the checksum may still read the former piece in the scratch memory.
    checksum.wait()
    piece = group.scratch(sum(sizes))
    group.broadcast(piece)
    checksum.add(piece)
    for stretch, part in zip(stretches, torch.split(piece, sizes), strict=True):
        stretch.copy_(part)


def _receive_trailer(group: WeightGroup) -> list[int]:
    trailer = torch.empty(TRAILER_BYTES, dtype=torch.uint8, device=group.device)
    group.broadcast(trailer)
    return [int(number) for number in trailer.view(torch.int64)]


def _can_receive_into(stretch: torch.Tensor, group: WeightGroup) -> bool:
    """Whether it is on the group's device and aligned, because a GPU's checksum reads whole words."""
    return stretch.device == group.device and stretch.storage_offset() % WORD_BYTES == 0


def _pieces(num_bytes: int, num_lanes: int) -> Iterator[tuple[int, int]]:
    size = piece_bytes(num_lanes)
    for start in range(0, num_bytes, size):
        yield start, min(start + size, num_bytes)


def _stretches(segments: list[tuple[int, int]], start: int, end: int) -> Iterator[slice]:
    """The places in the whole bucket of the packed bytes [start, end)."""
    packed = 0
    for offset, length in segments:
        first = max(start, packed)
        last = min(end, packed + length)
        if first < last:
            yield slice(offset + first - packed, offset + last - packed)
        packed += length
