"""Page-locked memory, where there is a card to lock it for."""

from __future__ import annotations

import gc

import pytest
import torch

from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.page_locked import lock_pages
from rollcast.weights.receiver.host_memory import attach, in_host_memory
from rollcast.weights.receiver.queued_copies import QueuedCopies
from rollcast.weights.sender.staging import StagingSlots

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BUCKETS = plan_buckets([TensorSpec("w", "bfloat16", (3 << 19, 11))], 1 << 22)


def test_a_slot_is_page_locked_without_the_rounding_of_torchs_allocator() -> None:
    before = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
    slots = StagingSlots(BUCKETS)
    assert all(slots[slot].memory.is_pinned() for slot in (0, 1))
    assert torch.cuda.memory.host_memory_stats()["allocated_bytes.current"] == before
    there = torch.randint(0, 256, slots[0].memory.shape, dtype=torch.uint8, device="cuda")
    slots[0].memory.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert slots[0].memory.equal(there.cpu())


def test_after_a_refusal_the_next_kernel_runs() -> None:
    locked = StagingSlots(BUCKETS)[0]
    lock_pages(locked)  # refused: it is locked already
    assert torch.ones(3, device="cuda").sum().item() == 3.0


def test_a_generators_version_is_page_locked_when_it_is_read_and_released_with_it() -> None:
    owner = in_host_memory(BUCKETS)
    reader = attach(owner.path, BUCKETS)
    memory = reader.memory
    assert not memory.is_pinned()
    assert all(view.is_pinned() for mapped in (owner, reader) for _, view in mapped.views())
    del reader
    gc.collect()
    assert not memory.is_pinned()
    assert owner.memory.is_pinned()


def test_queued_copies_are_exact_whole_and_in_slices() -> None:
    owner = in_host_memory(BUCKETS)
    owner.memory.random_(0, 256)
    ((_, weight),) = owner.views()
    numbers = weight.view(torch.int16)
    slices = {
        "whole": numbers,
        "rows of every expert": numbers.view(16, -1, 11)[:, 1024:50_000],
        "columns": numbers[:, 3:7],
        "columns of every expert": numbers.view(16, -1, 11)[..., 3:7],
    }
    device = torch.device("cuda", torch.cuda.current_device())
    targets = {
        name: torch.zeros(part.shape, dtype=part.dtype, device=device)
        for name, part in slices.items()
    }
    with QueuedCopies(device):
        for name, part in slices.items():
            targets[name].copy_(part)
    torch.cuda.current_stream().synchronize()
    for name, part in slices.items():
        assert targets[name].cpu().equal(part), name
