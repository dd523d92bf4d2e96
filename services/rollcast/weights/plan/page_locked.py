"""Page-locked host memory: the copy engine of a GPU reads and writes it at the speed of the bus,
next to the kernels.

If the system refuses to lock pages, copies are slower, but still correct.
"""

import weakref
from contextlib import suppress

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.snapshot import Snapshot, new_pages

_reported: set[int] = set()
"""CUDA errors that were reported: a refusal usually repeats with every snapshot."""

log = get_logger()


def lock_pages(snapshot: Snapshot) -> None:
    """Lock its pages as long as it lives. Does nothing on a machine without a GPU."""
    # torch's own allocator of such memory rounds up to a power of two: 4.3 GB for a shard of 2.1
    # GB.
    address = snapshot.memory.data_ptr()
    size = snapshot.memory.numel()
    if not size or not torch.cuda.is_available():
        return
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    # Flag of cudaHostRegister: page-locked for every CUDA context of the process
    if refused := int(runtime.cudaHostRegister(address, size, 1)):
        _clear_last_error()
        _report(refused, size)
        return
    # Not at the end of the process, when CUDA may have been shut down already.
    weakref.finalize(snapshot, runtime.cudaHostUnregister, address).atexit = False


def page_locked(size: int) -> torch.Tensor:
    """New memory, uint8 [size]; page-locked if the system allows it."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        _clear_last_error()
        return new_pages(size)


def _clear_last_error() -> None:
    """CUDA keeps the error of a failed call, and torch would raise it after this thread's next
    kernel.

    torch has no cudaGetLastError, which clears it. But torch calls it after every kernel: so launch
    one here.
    """
    with suppress(RuntimeError):
        torch.zeros(1, device="cuda")


def _report(refused: int, size: int) -> None:
    if refused not in _reported:
        _reported.add(refused)
        log.warning(
            "host memory cannot be page-locked; copies to the GPU take longer",
            bytes=size,
            cuda_error=refused,
        )
