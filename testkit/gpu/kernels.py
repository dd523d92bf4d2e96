"""Seconds of a card's kernels, by kind of work, from torch's profiler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "attention": r"flash|fmha|attention|sdpa",
    "products": r"gemm|cutlass|nvjet|xmma|cublas|splitk",
    "fused code": r"^triton_",
    "communication": r"nccl",
    "copies": r"memcpy|memset|copy_kernel|chunk_cat|split_with_sizes",
    "optimizer": r"adam|multi_tensor",
}
"""A kernel is of the first kind whose pattern its name matches."""
REST = "norms, activations and other small kernels"


def find_kind(kernel: str) -> str:
    return next(
        (kind for kind, pattern in KINDS.items() if re.search(pattern, kernel, re.IGNORECASE)), REST
    )


def seconds_by_kind(call: Callable[[], object], device: torch.device) -> dict[str, float] | None:
    """Seconds of the kernels of one call, by kind, and `idle` between them; None on the CPU."""
    if device.type == "cpu":
        return None
    torch.cuda.synchronize(device)
    start_event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end_event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        start_event.record()
        call()
        end_event.record()
        torch.cuda.synchronize(device)
    kind_seconds: Counter[str] = Counter()
    for kernel in profiler.key_averages():
        if kernel.device_type is DeviceType.CPU:
            continue
        kind_seconds[find_kind(kernel.key)] += kernel.self_device_time_total * 1e-6
    idle = max(0.0, start_event.elapsed_time(end_event) * 1e-3 - sum(kind_seconds.values()))
    return {
        kind: round(seconds, 4) for kind, seconds in [*kind_seconds.most_common(), ("idle", idle)]
    }
