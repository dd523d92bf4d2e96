"""An allocation that was refused is reported as one sentence; other errors pass."""

from __future__ import annotations

import pytest
import torch

from rollcast.config.out_of_memory import OutOfMemory, told_what_did_not_fit


def test_other_errors_pass_as_they_are() -> None:
    with (
        pytest.raises(RuntimeError, match="shapes") as error,
        told_what_did_not_fit("a thing", "do something"),
    ):
        raise RuntimeError("shapes do not agree")
    assert not isinstance(error.value, OutOfMemory)


def test_a_gpu_is_named() -> None:
    said = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB"
    with (
        pytest.raises(
            OutOfMemory,
            match=r"^out of GPU memory: an update does not fit \(it asked for 2.50 GiB more\); do",
        ),
        told_what_did_not_fit("an update", "do something"),
    ):
        raise torch.OutOfMemoryError(said)
