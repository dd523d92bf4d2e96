"""Weights on their way from the trainer to the generators: how much of them each process stages,
and where.
"""

from collections.abc import Sequence
from typing import Literal

from rollcast.memory.device import DeviceKind
from rollcast.weights.plan.manifest import PIECE_BYTES

StagingPlace = Literal["device", "host"]
"""A generator keeps a received version whole on every worker's device, or once in host memory for
all."""
PIECES_ON_THE_WAY = 2
"""Pieces in transfer, all lanes together, on a device that holds no whole version."""


def staging_place(
    setting: Literal["auto", "device", "host"], room: Sequence[tuple[int | None, int]]
) -> StagingPlace:
    """`room`: for each worker of a generator, free bytes of its device (None = the host) and bytes
    of its weights.

    A worker holds its part of the weights. On the device it would stage all of them.
    """
    if setting != "auto":
        return setting
    version_bytes = sum(worker_bytes for _, worker_bytes in room)
    # Device memory that staging leaves for the scratch space of kernels
    fits = all(free is None or free - version_bytes >= (1 << 30) for free, _ in room)
    return "device" if fits and (len(room) == 1 or room[0][0] is not None) else "host"


def staged_by_trainer(versions: int, kind: DeviceKind) -> int:
    """Bytes on the device of a rank whose rows of all versions that it keeps take `versions`.

    The versions are kept in host memory, which is the device if there is no GPU.
    """
    return versions if kind == "cpu" else PIECES_ON_THE_WAY * PIECE_BYTES


def staged_by_generator(
    version: int, location: StagingPlace, kind: DeviceKind, workers: int
) -> int:
    """Bytes on the device of each worker of a generator (`rollcast.weights.receiver.receiver`)."""
    if location == "device":
        return version
    return version // workers if kind == "cpu" else PIECES_ON_THE_WAY * PIECE_BYTES
