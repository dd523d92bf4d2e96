"""What this process holds, by the allocator that has it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path

import torch

from rollcast.weights.transport.process_group import WeightGroup


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, of all arenas; the other fields are not read."""

    _fields_ = [
        *((f"_{index}", ctypes.c_size_t) for index in range(4)),
        ("mapped", ctypes.c_size_t),
        *((f"_{index}", ctypes.c_size_t) for index in range(4, 6)),
        ("used", ctypes.c_size_t),
        ("free", ctypes.c_size_t),
        ("_6", ctypes.c_size_t),
    ]


def memory_by_kind() -> dict[str, float]:
    """Sizes in MiB, and the number of process groups of wire 2 that are alive.

    NCCL does not report its own memory. On the host it maps segments and the driver's devices; on
    the card it has a part of the used memory that torch has not reserved.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallocInfo
    heap = mallinfo2()
    sizes = {
        "malloc": heap.used + heap.mapped,
        "malloc_free": heap.free,
        "nccl_segments": sum(_mapped_bytes("nccl")),
        "nvidia_devices": sum(_mapped_bytes("/dev/nvidia")),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        sizes["pinned"] = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
        sizes["device_torch"] = torch.cuda.memory_reserved()
        free, total = torch.cuda.mem_get_info()
        sizes["device_all_processes"] = total - free
    groups = sum(isinstance(value, WeightGroup) for value in gc.get_objects())
    return {name: round(size / 2**20, 1) for name, size in sizes.items()} | {"groups": groups}


def _mapped_bytes(name: str) -> Iterator[int]:
    """Sizes of this process's mappings of files with `name` in their path."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *fields = line.split(maxsplit=5)
        if len(fields) == 5 and name in fields[4] and not fields[4].endswith(".so.2"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            yield end - start
