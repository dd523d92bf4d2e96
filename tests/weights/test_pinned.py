"""Page-locked memory, where there is a card to lock it for."""

from __future__ import annotations

import pytest
import torch

from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.sender.staging import StagingSlots

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_slot_is_page_locked_without_the_rounding_of_torchs_allocator() -> None:
    buckets = plan_buckets([TensorSpec("w", "bfloat16", (3 << 19, 11))], 1 << 22)
    before = torch.cuda.memory.host_memory_stats()["allocated_bytes.current"]
    slots = StagingSlots(buckets)
    assert all(slots[slot].memory.is_pinned() for slot in (0, 1))
    assert torch.cuda.memory.host_memory_stats()["allocated_bytes.current"] == before
    there = torch.randint(0, 256, slots[0].memory.shape, dtype=torch.uint8, device="cuda")
    slots[0].memory.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert slots[0].memory.equal(there.cpu())
