"""Rates of GPUs by their makers' data sheets."""

from dataclasses import dataclass

from rollcast.config.errors import UserError
from rollcast.memory.device import GB


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    memory_gb: float
    """Size in its name, in GB (10^9 bytes)."""
    flops: float
    """Floating-point operations per second of dense bfloat16 products."""
    bandwidth: float
    """Bytes per second between the GPU and its memory."""


CARDS = (
    Card("A100-40GB", 40, 312e12, 1.555e12),
    Card("L40S", 48, 362.05e12, 0.864e12),
    Card("A100-80GB", 80, 312e12, 2.039e12),
    Card("H100", 80, 989.4e12, 3.35e12),
    Card("H200", 141, 989.4e12, 4.8e12),
    Card("B200", 180, 2250e12, 8.0e12),
)
"""SXM versions. Of two with the same memory the later one is assumed, unless the user names the
other."""


def card_named(name: str) -> Card:
    """Raises UserError."""
    for card in CARDS:
        if card.name.lower() == name.lower():
            return card
    card_names = ", ".join(card.name for card in CARDS)
    raise UserError(f"--card {name}: is not a GPU whose rates are known; choose from {card_names}")


def find_card(num_bytes: int) -> Card:
    """The card whose memory is nearest to this number of bytes."""
    return min(reversed(CARDS), key=lambda card: abs(card.memory_gb * GB - num_bytes))
