"""How the bytes of a version travel over one lane: rank r's rows of every bucket, piece by piece,
then the trailer.

    root        its packed rows --(copied to the group's device)--> broadcast
    receivers   broadcast --> straight into the whole version if the piece is one stretch of it,
                              else through a scratch piece

The trailer is (incarnation, step, checksum) of the sent bytes, so that a receiver detects bytes of
another version. It is sent only if the buffers still hold that version when the last piece has been
read. PIECES_IN_FLIGHT pieces of a lane travel at the same time; on either side no more than these
are on the device beyond the version.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from rollcast.weights.plan.manifest import PIECE_BYTES, BucketSpec
from rollcast.weights.plan.shards import shard_segments
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.checksum import ChecksumBeside, signed_word
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.process_group import PIECES_IN_FLIGHT, WeightGroup
from rollcast.weights.transport.turns import LaneTurns
from rollcast.wire.version import PolicyVersion

WORD_BYTES = 8
TRAILER_BYTES = 3 * WORD_BYTES


def send(group: WeightGroup, shard: Snapshot, version: PolicyVersion) -> None:
    """Send the rows of `version` that `shard` holds, then the trailer; called at the lane's root.

    Raises GroupError, also if `shard` was written to in the meantime.
    """
    if shard.version != version:
        raise GroupError(f"version {version} was asked for, {shard.version} is staged")
    # On a CPU the shard was summed up when it was staged, once for all groups that it is sent to.
    staged_checksum = shard.checksum if group.device.type == "cpu" else None
    with ChecksumBeside(group.device) as checksum:
        for buffer in shard.buffers:
            for start, end in _pieces(buffer.numel(), group.address.num_lanes):
                while group.in_flight == PIECES_IN_FLIGHT:
                    group.wait_oldest()
                piece = buffer[start:end].to(group.device)
                if staged_checksum is None:
                    checksum.add(piece)
                group.begin_broadcast(piece)
        while group.in_flight:
            group.wait_oldest()
        version_checksum = checksum.wait() if staged_checksum is None else staged_checksum
    # Without the trailer no receiver accepts the pieces that were read while the next version was
    # staged.
    if shard.version != version:
        raise GroupError(f"version {version} was overwritten by {shard.version} while it was sent")
    trailer = [signed_word(number) for number in (*version, version_checksum)]
    group.broadcast(torch.tensor(trailer, device=group.device).view(torch.uint8))


def receive(
    group: WeightGroup, snapshot: Snapshot, version: PolicyVersion, turns: LaneTurns | None = None
) -> None:
    """Fill the rows of `snapshot` that this lane carries. `turns`: those of all lanes; None = this
    is the only one.

    Raises GroupError, also if the received bytes are not those of `version`.
    """
    lane = group.address.lane
    turns = turns or plan_turns(snapshot.specs, group.address.num_lanes, group.address.num_lanes)
    try:
        with ChecksumBeside(group.device) as checksum:
            arrivals = _Arrivals(group, turns, checksum)
            for stretches in _targets(snapshot, lane, group.address.num_lanes):
                arrivals.begin_piece(stretches)
            arrivals.wait_all()
            version_checksum = checksum.wait()
        with turns.turn(lane, group.address.timeout_seconds):
            trailer = torch.empty(TRAILER_BYTES, dtype=torch.uint8, device=group.device)
            group.broadcast(trailer)
            incarnation, step, sent_total = map(int, trailer.view(torch.int64))
    except BaseException:
        turns.give_up()
        raise
    if (incarnation, step) != version:
        raise GroupError(
            f"version {version} was announced, {incarnation}.{step} came over lane {lane}"
        )
    if sent_total != signed_word(version_checksum):
        raise GroupError(f"version {version}: the checksum of the bytes from lane {lane} is wrong")


class _Arrivals:
    """The pieces of one lane that travel to this receiver."""

    def __init__(self, group: WeightGroup, turns: LaneTurns, checksum: ChecksumBeside) -> None:
        self._group = group
        self._lane = group.address.lane
        self._turns = turns
        self._checksum = checksum
        self._arriving: deque[tuple[torch.Tensor, list[torch.Tensor]]] = deque()
        self._num_begun = 0

    def begin_piece(self, stretches: list[torch.Tensor]) -> None:
        """Start to receive one piece into the uint8 stretches of the version that it consists of,
        in order.
        """
        while len(self._arriving) == PIECES_IN_FLIGHT:
            self._wait_oldest()
        # A lane that waits for its turn with a piece on its way would hold up the lanes that it
        # waits for.
        while self._arriving and not self._turns.may_begin(self._lane):
            self._wait_oldest()
        self._turns.begin(self._lane, self._group.address.timeout_seconds)
        piece = self._memory(stretches)
        self._group.begin_broadcast(piece)
        self._arriving.append((piece, stretches))

    def wait_all(self) -> None:
        while self._arriving:
            self._wait_oldest()

    def _memory(self, stretches: list[torch.Tensor]) -> torch.Tensor:
        """The memory that receives the piece: the version itself if it is one stretch of it, else
        scratch memory.
        """
        if len(stretches) == 1 and _can_receive_into(stretches[0], self._group):
            return stretches[0]
        # The thread of the checksum may still read the former piece in the scratch memory.
        self._checksum.wait()
        index = self._num_begun % PIECES_IN_FLIGHT
        self._num_begun += 1
        return self._group.scratch(index, sum(stretch.numel() for stretch in stretches))

    def _wait_oldest(self) -> None:
        """Wait for the oldest piece."""
        piece, stretches = self._arriving.popleft()
        self._group.wait_oldest()
        self._turns.end(self._lane)
        self._checksum.add(piece)
        if piece is stretches[0]:
            return
        sizes = [stretch.numel() for stretch in stretches]
        for stretch, stretch_bytes in zip(stretches, torch.split(piece, sizes), strict=True):
            stretch.copy_(stretch_bytes)


def plan_turns(
    specs: Sequence[BucketSpec], num_lanes: int, at_once: int | None = None
) -> LaneTurns:
    """The order in which one receiver takes a version's pieces and trailers.

    `at_once`: as for `LaneTurns`.
    """

    def count(lane: int) -> int:
        sizes = (
            sum(length for _, length in shard_segments(bucket, lane, num_lanes)) for bucket in specs
        )
        return 1 + sum(len(list(_pieces(size, num_lanes))) for size in sizes)

    return LaneTurns([count(lane) for lane in range(num_lanes)], at_once)


def piece_bytes(num_lanes: int) -> int:
    """Size of a lane's piece: together the lanes have about PIECE_BYTES on their way."""
    size = PIECE_BYTES // num_lanes // PIECES_IN_FLIGHT
    # Smaller pieces cost more in calls than in bytes.
    min_piece_bytes = 1 << 20
    return max(min_piece_bytes, size // min_piece_bytes * min_piece_bytes)


def pieces_at_once(num_lanes: int) -> int:
    """How many groups may have pieces on a rank's device: together at most PIECE_BYTES."""
    return max(1, PIECE_BYTES // piece_bytes(num_lanes) // PIECES_IN_FLIGHT)


def _can_receive_into(stretch: torch.Tensor, group: WeightGroup) -> bool:
    """Whether it is on the group's device and aligned,
    because a GPU's checksum reads whole words.
    """
    return stretch.device == group.device and stretch.storage_offset() % WORD_BYTES == 0


def _targets(snapshot: Snapshot, lane: int, num_lanes: int) -> Iterator[list[torch.Tensor]]:
    """The stretches of the version that each piece of the lane fills."""
    for bucket, buffer in zip(snapshot.specs, snapshot.buffers, strict=True):
        segments = shard_segments(bucket, lane, num_lanes)
        for start, end in _pieces(sum(length for _, length in segments), num_lanes):
            yield [buffer[byte_range] for byte_range in stretches(segments, start, end)]


def _pieces(num_bytes: int, num_lanes: int) -> Iterator[tuple[int, int]]:
    size = piece_bytes(num_lanes)
    for start in range(0, num_bytes, size):
        yield start, min(start + size, num_bytes)


def stretches(segments: list[tuple[int, int]], start: int, end: int) -> Iterator[slice]:
    """The places in the whole bucket of the packed bytes [start, end)."""
    packed = 0
    for offset, length in segments:
        stretch_start = max(start, packed)
        stretch_end = min(end, packed + length)
        if stretch_start < stretch_end:
            yield slice(offset + stretch_start - packed, offset + stretch_end - packed)
        packed += length
