"""Events that `kubectl describe` shows: one sentence for each change of the number or reason to
hold it.
"""

from collections import deque
from enum import StrEnum

MAX_WAITING_EVENTS = 16
"""Events kept while the API server does not answer. The oldest are dropped."""


class Occasion(StrEnum):
    """Reason of an event, as Kubernetes names them."""

    RAISED = "GeneratorsRaised"
    LOWERED = "GeneratorsLowered"
    HELD = "GeneratorsHeld"
    """Nothing could be measured for a while, so the number stays."""
    MEASURED = "GeneratorsMeasured"
    """The run can be measured again."""
    MISSING = "GeneratorsMissing"
    """Fewer generators work than are asked for, for longer than one takes to start."""
    COMPLETE = "GeneratorsComplete"
    """All generators that are asked for work again."""
    ENDED = "RunEnded"
    MOVED = "TrainerReplaced"
    """The trainer's pod had left on request, and its Job was made again."""

    @property
    def is_warning(self) -> bool:
        return self in (Occasion.HELD, Occasion.MISSING)


ENDS = {Occasion.HELD: Occasion.MEASURED, Occasion.MISSING: Occasion.COMPLETE}
"""The occasion that is announced when a state no longer holds."""


class Announcer:
    """Announces a state once, however long it lasts, and each change of the number.

    Times in seconds on one clock.
    """

    def __init__(self) -> None:
        self.waiting: deque[tuple[Occasion, str]] = deque(maxlen=MAX_WAITING_EVENTS)
        """Events to write, each with one sentence, oldest first. The writer removes them."""
        self._announced: set[Occasion] = set()
        """States that were announced and still hold."""
        self._since: dict[Occasion, float] = {}

    def announce_change(self, previous_target: int, target: int, reason: str) -> None:
        """The number changed."""
        self._say(Occasion.RAISED if target > previous_target else Occasion.LOWERED, reason)

    def announce_hold(
        self, now_seconds: float, is_held: bool, reason: str, patience: float
    ) -> None:
        """`is_held`: nothing can be measured. Announced once it has lasted `patience` seconds."""
        self._announce_state(now_seconds, Occasion.HELD, is_held, reason, patience)

    def announce_missing(
        self, now_seconds: float, are_missing: bool, reason: str, patience: float
    ) -> None:
        """`are_missing`: fewer generators work than are asked for.

        Announced once it has lasted `patience` seconds.
        """
        self._announce_state(now_seconds, Occasion.MISSING, are_missing, reason, patience)

    def announce_end(self, reason: str) -> None:
        """The run has ended."""
        if Occasion.ENDED not in self._announced:
            self._announced = {Occasion.ENDED}
            self._since.clear()
            self._say(Occasion.ENDED, reason)

    def announce_replaced_job(self, job: str) -> None:
        """The trainer's Job was replaced."""
        leave_reason = "its pod had left on request, and the next one must not wait"
        self._say(Occasion.MOVED, f"Job {job} was made again: {leave_reason}")

    def goes_on(self) -> None:
        """The run has not ended, or another one has begun."""
        self._announced.discard(Occasion.ENDED)

    def _announce_state(
        self, now_seconds: float, state: Occasion, holds: bool, reason: str, patience: float
    ) -> None:
        if not holds:
            self._since.pop(state, None)
            if state in self._announced:
                self._announced.discard(state)
                self._say(ENDS[state], reason)
        elif (
            state not in self._announced
            and now_seconds - self._since.setdefault(state, now_seconds) >= patience
        ):
            self._announced.add(state)
            self._say(state, reason)

    def _say(self, occasion: Occasion, sentence: str) -> None:
        self.waiting.append((occasion, sentence))
