"""Page-locked host memory of exactly the size that is needed.

torch's own allocator of such memory rounds up to a power of two: it would take 4.3 GB for a shard of 2.1 GB.
"""

import weakref

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.snapshot import Snapshot

CUDA_HOST_REGISTER_PORTABLE = 1
"""Flag of cudaHostRegister: page-locked for every CUDA context of the process."""
log = get_logger()


def pin(snapshot: Snapshot) -> Snapshot:
    """Lock its pages as long as it lives, so that a GPU's copy engine copies it while the GPU computes.

    If the system refuses, copies are slower, but still correct.
    """
    address = snapshot.memory.data_ptr()
    size = snapshot.memory.numel()
    if not size:
        return snapshot
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if refused := int(runtime.cudaHostRegister(address, size, CUDA_HOST_REGISTER_PORTABLE)):
        log.warning("host memory cannot be page-locked; copies to the GPU take longer", bytes=size, cuda_error=refused)
        return snapshot
    # Not at the end of the process, when CUDA may have been shut down already.
    weakref.finalize(snapshot, runtime.cudaHostUnregister, address).atexit = False
    return snapshot
