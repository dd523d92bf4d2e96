"""Whether a fault took effect, with its measurements."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Effect:
    """The effect of one fault. One without effect is made again, and is not counted."""

    took: bool
    evidence: str
    """What shows it, or why there was none."""
    held: list[int] = field(default_factory=list)
    """Tasks of a generator at the moment when it was struck."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Measured times, by name."""
