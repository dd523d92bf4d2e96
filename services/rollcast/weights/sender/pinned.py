"""Page-locked host memory of just the size that is needed.

torch's own allocator of such memory rounds up to a power of two: of a shard of 2.1 GB it would hold 4.3.
"""

from __future__ import annotations

import weakref

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.snapshot import Snapshot

PORTABLE = 1
"""cudaHostRegisterPortable: locked for every context of the process."""
log = get_logger()


def pin(snapshot: Snapshot) -> Snapshot:
    """Lock its pages for as long as it lives: a card's own engine then copies it while the card computes.

    Where the system refuses, copies are slower, and right.
    """
    address, size = snapshot.memory.data_ptr(), snapshot.memory.numel()
    if not size:
        return snapshot
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if refused := int(runtime.cudaHostRegister(address, size, PORTABLE)):
        log.warning("host memory cannot be page-locked; copies to the GPU take longer", bytes=size, cuda_error=refused)
        return snapshot
    # Not at the end of the process, when CUDA may be gone already.
    weakref.finalize(snapshot, runtime.cudaHostUnregister, address).atexit = False
    return snapshot
