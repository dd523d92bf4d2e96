"""What `kubectl describe` says of the number: one sentence for each change, and for what keeps it from one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

MOST_WAITING = 16
"""Events that wait for an API server that is away; the oldest of more are dropped."""


class Occasion(StrEnum):
    """Reason of an event, as Kubernetes names them."""

    RAISED = "GeneratorsRaised"
    LOWERED = "GeneratorsLowered"
    HELD = "GeneratorsHeld"
    """Nothing could be measured for a while: the number stays."""
    MEASURED = "GeneratorsMeasured"
    """It can be measured again."""
    MISSING = "GeneratorsMissing"
    """Fewer work than are asked for, and have for longer than one takes to start."""
    COMPLETE = "GeneratorsComplete"
    """As many work as are asked for, again."""
    ENDED = "RunEnded"


WARNINGS = {Occasion.HELD, Occasion.MISSING}


@dataclass(frozen=True, slots=True)
class Announcement:
    """One event."""

    occasion: Occasion
    sentence: str

    @property
    def is_warning(self) -> bool:
        return self.occasion in WARNINGS


class Announcer:
    """Says a state once, however long it lasts, and each change of the number. Times in seconds on one clock."""

    def __init__(self) -> None:
        self.waiting: deque[Announcement] = deque(maxlen=MOST_WAITING)
        """To be written, oldest first; whoever writes takes them off."""
        self._standing: set[Occasion] = set()
        """What was said and holds."""
        self._since: dict[Occasion, float] = {}

    def changed(self, before: int, target: int, reason: str) -> None:
        """The number changed."""
        self._say(Occasion.RAISED if target > before else Occasion.LOWERED, reason)

    def held(self, now: float, is_held: bool, reason: str, patience: float) -> None:
        """Whether nothing can be measured; it is told once it has lasted `patience` seconds."""
        self._state(now, Occasion.HELD, Occasion.MEASURED, is_held, reason, patience)

    def missing(self, now: float, are_missing: bool, reason: str, patience: float) -> None:
        """Whether fewer generators work than are asked for; it is told once it has lasted `patience` seconds."""
        self._state(now, Occasion.MISSING, Occasion.COMPLETE, are_missing, reason, patience)

    def ended(self, reason: str) -> None:
        """The run has ended."""
        if Occasion.ENDED not in self._standing:
            self._standing = {Occasion.ENDED}
            self._since.clear()
            self._say(Occasion.ENDED, reason)

    def goes_on(self) -> None:
        """The run has not ended, or another one has begun."""
        self._standing.discard(Occasion.ENDED)

    def _state(self, now: float, begun: Occasion, over: Occasion, holds: bool, reason: str, patience: float) -> None:
        if not holds:
            self._since.pop(begun, None)
            if begun in self._standing:
                self._standing.discard(begun)
                self._say(over, reason)
        elif begun not in self._standing and now - self._since.setdefault(begun, now) >= patience:
            self._standing.add(begun)
            self._say(begun, reason)

    def _say(self, occasion: Occasion, sentence: str) -> None:
        self.waiting.append(Announcement(occasion, sentence))
