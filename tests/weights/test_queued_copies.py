"""Copies into a model are queued, one for each stretch of memory, and exact.

The device is the CPU here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from rollcast.weights.receiver import queued_copies
from rollcast.weights.receiver.queued_copies import QueuedCopies

CPU = torch.device("cpu")
EXPERTS, ROWS, COLUMNS = 6, 256, 512
"""A row is 1 KiB, the half of an expert's rows 128 KiB."""


class Calls(TorchFunctionMode):
    """Records what crosses the bus: copies from the host, and stretches on their way
    to a scratch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[torch.Tensor] = []

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        if keywords.get("non_blocking"):
            source = arguments[1] if function is torch.Tensor.copy_ else arguments[0]
            self.sources.append(source)
        return function(*arguments, **keywords)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)


def copied(source: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    with Calls() as calls, QueuedCopies(CPU):
        assert target.copy_(source) is target
    assert target.equal(source.to(target.dtype))
    assert all(one.is_contiguous() for one in calls.sources), (
        "the host would gather it in new memory"
    )
    return calls.sources


def test_a_whole_weight_is_one_copy() -> None:
    assert (
        len(
            copied(
                numbers(EXPERTS, ROWS, COLUMNS),
                torch.zeros(EXPERTS, ROWS, COLUMNS, dtype=torch.bfloat16),
            )
        )
        == 1
    )


def test_a_conversion_is_one_copy() -> None:
    assert len(copied(numbers(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS))) == 1


def test_a_workers_rows_of_every_expert_are_one_copy_for_each_expert() -> None:
    mine = numbers(EXPERTS, ROWS, COLUMNS)[:, ROWS // 2 :]
    gate_and_up = torch.zeros(EXPERTS, ROWS, COLUMNS, dtype=torch.bfloat16)
    assert len(copied(mine, gate_and_up[:, : ROWS // 2])) == EXPERTS
    assert not gate_and_up[:, ROWS // 2 :].any()


@pytest.mark.parametrize("shape", [(EXPERTS, ROWS, COLUMNS), (ROWS, COLUMNS)])
def test_a_workers_columns_are_taken_from_whole_stretches(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = numbers(*shape)[..., COLUMNS // 4 : COLUMNS // 2]
    target = torch.zeros(mine.shape, dtype=torch.bfloat16)
    assert len(copied(mine, target)) == 1
    few = 4 * mine.stride(0) * mine.element_size()
    monkeypatch.setattr(queued_copies, "MAX_SCRATCH_BYTES", few)
    target.zero_()
    pieces = copied(mine, target)
    assert len(pieces) == -(-shape[0] // 4)
    assert max(piece.nbytes for piece in pieces) <= few


def test_what_does_not_cross_the_bus_is_copied_as_ever() -> None:
    target = torch.zeros(3)
    with Calls() as calls, QueuedCopies(torch.device("cuda")):
        target.copy_(torch.ones(3))
    assert target.tolist() == [1.0, 1.0, 1.0]
    assert not calls.sources
