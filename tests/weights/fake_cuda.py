"""What this project's code calls of CUDA, on a machine without a GPU: the runtime keeps errors,
streams run late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

CUDA_ERROR_NOT_SUPPORTED = 801


class FakeRuntime:
    """cudaHostRegister and the last error, which the next kernel's check raises and clears."""

    def __init__(self, *, refuses: bool) -> None:
        self.registered: dict[int, int] = {}
        """Size of each registered range, by address."""
        self.num_calls = 0
        self._refuses = refuses
        self._last_error = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802  (CUDA's name)
        self.num_calls += 1
        if self._refuses:
            self._last_error = CUDA_ERROR_NOT_SUPPORTED
            return CUDA_ERROR_NOT_SUPPORTED
        assert address not in self.registered
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802  (CUDA's name)
        del self.registered[address]
        return 0

    def check_kernel(self) -> None:
        error = self._last_error
        self._last_error = 0
        if error:
            raise RuntimeError(f"CUDA error: {error}")


class LateStream:
    """A stream whose kernels run when it is waited for, and not before."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], Any]] = []

    def synchronize(self) -> None:
        while self.queue:
            self.queue.pop(0)()


def replace_cuda(patch: pytest.MonkeyPatch, runtime: FakeRuntime, stream: LateStream) -> None:
    """From now on `device="cuda"` is memory of the host, and its kernels are queued on `stream`."""
    zeros = torch.zeros
    empty = torch.empty

    def is_cuda(keywords: dict[str, Any]) -> bool:
        return torch.device(keywords.get("device") or "cpu").type == "cuda"

    def zeros_there(*size: Any, **keywords: Any) -> torch.Tensor:
        if not is_cuda(keywords):
            return zeros(*size, **keywords)
        runtime.check_kernel()
        memory = empty(*size, **keywords | {"device": "cpu"})
        stream.queue.append(memory.zero_)
        return memory

    def empty_there(*size: Any, **keywords: Any) -> torch.Tensor:
        if not is_cuda(keywords):
            return empty(*size, **keywords)
        memory = empty(*size, **keywords | {"device": "cpu"})
        # The memory was used before, and the stream is not through with it.
        stream.queue.append(lambda: memory.fill_(1))
        return memory

    patch.setattr(torch, "zeros", zeros_there)
    patch.setattr(torch, "empty", empty_there)
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "cudart", lambda: runtime)
    patch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
