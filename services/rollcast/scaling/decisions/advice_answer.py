"""The parts of an advice."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class AdviceKind(StrEnum):
    STOP = "stop"
    CONTINUE = "continue"
    WAIT = "wait"


@dataclass(frozen=True)
class Stretch:
    """A stretch of compute from now on, and its gain.

    Attributes:
        until: compute at its end.
        compute: from now to its end.
        money: its price; None without a price.
        gain: of the measured level in pass rate: 5 %, median, 95 %; None if nothing is forecast.
    """

    until: float
    compute: float
    money: float | None
    gain: tuple[float, float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Every attribute for JSON, the gain as q05, q50 and q95."""
        levels = ("q05", "q50", "q95")
        gain = None if self.gain is None else dict(zip(levels, self.gain, strict=True))
        return vars(self) | {"gain": gain}


@dataclass(frozen=True)
class EarlierAdvice:
    """The last advice on a run, which is kept unless another is clearly better.

    Attributes:
        evaluations: that are still to be waited for; 0 for stop and continue.
    """

    kind: AdviceKind
    evaluations: int

    @classmethod
    def after(cls, kind: str, evaluations: int, num_passed: int) -> "EarlierAdvice | None":
        """The rest of an advice `num_passed` evaluations later; None once a wait is over."""
        num_remaining = max(evaluations - num_passed, 0)
        if kind == AdviceKind.WAIT and num_remaining == 0:
            return None
        return cls(AdviceKind(kind), num_remaining)


@dataclass(frozen=True)
class Advice:
    """Advice on the rest of a budget. Compute is in device-hours, or in the unit of the curve.

    Attributes:
        headline: what to do, in a few words; None before there are evaluations enough for a
            forecast.
        evaluations: to wait for; 0 for stop and continue.
        budget: compute at which the run would end.
        is_assumed: no budget was given; it is twice the compute so far.
        worth: gain in pass rate that would pay for the rest.
        price: of one unit of compute, or None.
        level: mean of the newest readings, from which every gain is counted.
        mean_gain: what the rest gains on average if the checkpoint of now is kept in case it loses:
            the largest `worth` with which it pays to continue. None if nothing is forecast.
        chance: that the rest gains `worth` or more; that a run which has learned nothing still
            takes off; None if there is no rest, or nothing is forecast.
        soon: the next tenth of the budget, or the rest if that is less.
        rest: all of the rest.
        wait: until the end of the evaluations to wait for; None for stop and continue.
        reason: why, in a sentence or two.
        change: what would change the advice, in one sentence.
    """

    kind: AdviceKind
    headline: str | None
    evaluations: int
    budget: float
    is_assumed: bool
    worth: float
    price: float | None
    level: float
    mean_gain: float | None
    chance: float | None
    soon: Stretch
    rest: Stretch
    wait: Stretch | None
    reason: str
    change: str

    def to_dict(self) -> dict[str, Any]:
        """Every attribute for JSON, intervals as q05, q50 and q95."""
        stretches = {
            "soon": self.soon.to_dict(),
            "rest": self.rest.to_dict(),
            "wait": None if self.wait is None else self.wait.to_dict(),
        }
        return vars(self) | {"kind": str(self.kind)} | stretches
