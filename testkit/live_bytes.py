"""Bytes of all tensors that a piece of code makes: now and at their most."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, on this thread. Storages that came from outside do not count, nor do views of any."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current_bytes = self.peak_bytes = 0
        self._storage_ids: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        argument_ids = {id(storage) for storage in _storages((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for storage in _storages(result):
            if id(storage) not in argument_ids | self._storage_ids:
                self._add(storage)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        number, num_bytes = id(storage), storage.nbytes()
        self._storage_ids.add(number)
        self.current_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)
        weakref.finalize(storage, self._remove, number, num_bytes)

    def _remove(self, number: int, num_bytes: int) -> None:
        self._storage_ids.remove(number)
        self.current_bytes -= num_bytes


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
