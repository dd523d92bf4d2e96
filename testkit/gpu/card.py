"""The device that a part runs on: its name, its peak rates, and the time of a call."""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

PEAK_FLOPS = {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989.4e12,
    "NVIDIA H200": 989.4e12,
    "NVIDIA L40S": 362.05e12,
}
"""Dense bfloat16 by the makers' data sheets."""
PRODUCT_SIDE = 8_192


def describe_card(device: torch.device) -> dict[str, Any] | None:
    """Name, memory in GiB, versions; None on the CPU."""
    if device.type == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "nccl": _nccl_version(),
        "driver": (first_card() or {}).get("driver"),
    }


def first_card() -> dict[str, Any] | None:
    """Name, memory and driver as nvidia-smi reports them, which takes no memory of the card; None
    without a card.
    """
    if shutil.which("nvidia-smi") is None or not torch.cuda.is_available():
        return None
    fields = "--query-gpu=name,memory.total,driver_version"
    command = ["nvidia-smi", fields, "--format=csv,noheader,nounits"]
    # How long nvidia-smi may take to answer
    driver_output = subprocess.run(
        command, capture_output=True, text=True, timeout=20.0, check=True
    ).stdout
    name, memory, driver = driver_output.splitlines()[0].split(", ")
    return {
        "name": name,
        "memory_gib": round(int(memory) / 1024, 1),
        "driver": driver,
        "nccl": _nccl_version(),
    }


def _nccl_version() -> str:
    nccl_version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, nccl_version))


def peak_flops(device: torch.device) -> float | None:
    """FLOPs of bfloat16 per second by the data sheet; None if unknown for this card."""
    return PEAK_FLOPS.get(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


def product_flops(device: torch.device, *, side: int = PRODUCT_SIDE) -> float:
    """FLOPs per second of a large bfloat16 matrix product, as measured now."""
    left_matrix, right_matrix = (
        torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2)
    )
    return 2 * side**3 / median_seconds(lambda: left_matrix @ right_matrix, device, repeats=10)


def median_seconds(call: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Seconds of one call, the device's work included; a first one warms up and does not count."""
    seconds = []
    for _ in range(repeats + 1):
        _wait(device)
        started = time.perf_counter()
        call()
        _wait(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def start_counting_memory(device: torch.device) -> int:
    """Give back what earlier measurements left; returns the bytes that tensors still hold."""
    gc.collect()
    if device.type == "cpu":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_memory_gib(device: torch.device, bytes_before: int) -> float | None:
    """Peak bytes of tensors since `start_counting_memory`, above those `bytes_before` then; None on
    the CPU.
    """
    return (
        round((torch.cuda.max_memory_allocated(device) - bytes_before) / 2**30, 2)
        if device.type == "cuda"
        else None
    )


def or_why_not(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The measurement, or {"failed": why}: the other settings are measured all the same."""
    try:
        return measure()
    except Exception as error:
        if not isinstance(error, torch.OutOfMemoryError):
            traceback.print_exc()
        return {"failed": describe_error(error)}


def describe_error(error: Exception) -> str:
    """The kind of an error, and the first sentences of its message."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {'. '.join(words.split('. ')[:2])[:300]}".removesuffix(".")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
