"""What changed in a piece of a rank's rows since another version, exactly: words and where they stand.

At the learning rates of reinforcement learning few bfloat16 weights change in a step. A piece is told as its changed
words (2 bytes each for bfloat16) and their positions (4 bytes), or whole where that is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rollcast.weights.transport.process_group import GroupError

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Compared and copied as integers: a NaN equals itself, and 0 differs from -0."""
POSITION_BYTES = 4


def pack_changes(new: Tensor, old: Tensor, item_bytes: int) -> Tensor | None:
    """uint8 [n] of the changes from `old` to `new` (uint8, one size), or None where the whole of it is no longer."""
    words = new.view(WORDS[item_bytes])
    positions = (words != old.view(WORDS[item_bytes])).nonzero()[:, 0]
    if positions.numel() * (item_bytes + POSITION_BYTES) >= new.numel():
        return None
    return torch.cat([words[positions].view(torch.uint8), positions.to(torch.int32).view(torch.uint8)])


def apply_changes(packed: Tensor, stretches: Sequence[Tensor], item_bytes: int) -> None:
    """Write `packed` into the uint8 stretches that the piece lies in, in order."""
    size = packed.numel() // (item_bytes + POSITION_BYTES) * item_bytes
    words = packed[:size].view(WORDS[item_bytes])
    positions = packed[size:].clone().view(torch.int32)  # cloned: it may lie at an odd address
    size_in_words = sum(stretch.numel() for stretch in stretches) // item_bytes
    if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < size_in_words:
        raise GroupError("a change stands outside of its piece")  # before the checksum is known: nothing may crash
    ends = torch.tensor([stretch.numel() // item_bytes for stretch in stretches]).cumsum(0)
    bounds = torch.searchsorted(positions, ends.to(positions)).tolist()
    first, start = 0, 0
    for stretch, last, end in zip(stretches, bounds, ends.tolist(), strict=True):
        inside = slice(first, last)
        target = stretch.view(WORDS[item_bytes])
        target[(positions[inside] - start).long().to(target.device)] = words[inside].to(target.device)
        first, start = last, end
