"""Members of wire 2 are killed and frozen on one card, over NCCL, four lanes:
`testkit.weights.faults`. After each event the survivors' memory is recorded by allocator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testkit.weights import faults

ON_A_CARD = faults.Faults(
    lanes=4, kills=3, freezes=3, settle_seconds=120.0, device="cuda:0", memory_after_each=True
)
WHEN_SMALL = replace(
    ON_A_CARD, lanes=1, kills=1, freezes=0, settle_seconds=1.0, megabytes=2, device="cpu"
)
"""Memory is not judged so soon after an event."""


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """Figures and targets of six events."""
    figures = faults.measure(WHEN_SMALL if is_small else ON_A_CARD)
    return figures | ({"targets": {}} if is_small else {})
