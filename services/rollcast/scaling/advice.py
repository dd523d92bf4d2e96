"""Stop, continue, or wait for n more evaluations: what a forecast means for the rest of a budget.

The user names the gain that he would pay the rest of the budget for. The chance that continuing pays is the share of
equally likely trajectories that gain as much by the end of the budget:

    below 5 %        stop
    50 % or more     continue: more likely than not the rest brings what is asked
    between          wait for n more evaluations and ask again; `waiting` finds n

The trajectories are the fitted curve's: turns to come, which the band of readings has, are counted in no gain and no
chance. They alone bring 0.02 with 6 % until twice the compute, so that with them hardly any run with that much left
would be told to stop.

So a larger gain that is asked for only ever leads from continue over wait to stop, and a price only scales. A verdict
that bars decisions never leads to stop, unless no trajectory gains anything. Where no law describes the curve there is
no gain to tell either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.scaling.curve import Array
from rollcast.scaling.digits import difference
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.verdict import VerdictKind
from rollcast.scaling.waiting import CLEAR, WaitPlan, evaluation_spacing, plan_wait

WORTH_OF_DOUBLING = 0.02
"""Where the user names no gain: what as much compute again as was spent has to bring, and a smaller rest in proportion.
Three runs of one recipe differ by as much (A.5 of arXiv 2510.13786): a smaller gain is none that one could show."""
STOP_BELOW, CONTINUE_FROM = 0.05, 0.5
"""Of the chance."""
SOON = 0.1
"""Share of the budget whose gain is told apart from that of the rest."""
NOTHING = 0.001
"""A gain that no evaluation shows."""
ASSUMED_BUDGET = 2.0
"""Times the compute so far, where no budget is known."""
NEW_LAW = 5
"""Evaluations that a law needs after a change of regime, before anything can be said."""
NEW_COMPUTE = 0.25
"""Share of the compute so far that a wait for an early verdict adds at least: a bend shows in the logarithm of compute,
and evaluations that hardly add to that tell nothing of it."""


class AdviceKind(StrEnum):
    STOP = "stop"
    CONTINUE = "continue"
    WAIT = "wait"


class Axis(Protocol):
    """A rising map between the compute that is paid for and what the law is fitted on; (m,) -> (m,)."""

    def to_fitted(self, device_hours: Array) -> Array: ...

    def to_device_hours(self, fitted: Array) -> Array: ...


class SameAxis:
    """The law is fitted on the compute that is paid for."""

    def to_fitted(self, device_hours: Array) -> Array:
        return device_hours

    def to_device_hours(self, fitted: Array) -> Array:
        return fitted


@dataclass(frozen=True)
class Stretch:
    """What is spent from now on, and what it gains.

    Attributes:
        until: compute at its end.
        compute: from now to there.
        money: the same times the price; None without one.
        gain: of the law in pass rate: 5 %, median, 95 %; None where no law describes the curve.
    """

    until: float
    compute: float
    money: float | None
    gain: tuple[float, float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: every attribute, the gain as q05, q50 and q95."""
        gain = None if self.gain is None else dict(zip(("q05", "q50", "q95"), self.gain, strict=True))
        return {"until": self.until, "compute": self.compute, "money": self.money, "gain": gain}


@dataclass(frozen=True)
class Advice:
    """What to do with the rest of a budget. Compute is in device-hours, or in the unit of the curve.

    Attributes:
        evaluations: to wait for; 0 for stop and continue.
        budget: compute at which the run would end.
        is_assumed: nobody told a budget; it is twice the compute so far.
        worth: gain in pass rate that the user would pay the rest for.
        price: of one unit of compute; None where nobody told one.
        chance: that the rest gains `worth` or more on the fitted curve, turns to come left out; None where there is no
            rest, or no law describes the curve.
        soon: the next tenth of the budget, or the rest where that is less.
        rest: all of the rest.
        wait: until the evaluations to wait for have come; None for stop and continue.
        reason: why, in a sentence or two.
        change: what would change the advice, in one sentence.
    """

    kind: AdviceKind
    evaluations: int
    budget: float
    is_assumed: bool
    worth: float
    price: float | None
    chance: float | None
    soon: Stretch
    rest: Stretch
    wait: Stretch | None
    reason: str
    change: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON: every attribute, and the headline; intervals as q05, q50 and q95."""
        return {
            "kind": str(self.kind),
            "headline": self.headline,
            "evaluations": self.evaluations,
            "budget": self.budget,
            "is_assumed": self.is_assumed,
            "worth": self.worth,
            "price": self.price,
            "chance": self.chance,
            "soon": self.soon.to_dict(),
            "rest": self.rest.to_dict(),
            "wait": None if self.wait is None else self.wait.to_dict(),
            "reason": self.reason,
            "change": self.change,
        }

    @property
    def headline(self) -> str:
        """What to do, in a few words."""
        if self.kind is not AdviceKind.WAIT:
            return self.kind.capitalize()
        return f"Wait for {_evaluations(self.evaluations)}"


def advise(
    forecast: Forecast,
    budget: float | None = None,
    *,
    worth: float | None = None,
    price: float | None = None,
    axis: Axis | None = None,
) -> Advice:
    """The advice on the rest of a budget.

    Args:
        forecast: of the run so far.
        budget: compute at which the run would end, what was spent included; None: twice as much as was spent.
        worth: gain in pass rate that the rest would be paid for; None: 0.02, and less in proportion where less is left
            than was spent.
        price: of one device-hour, or of one unit in which the curve counts; in any currency.
        axis: leads from the compute of budget and answer to that of the fit; None: they are the same.

    Raises:
        ValueError: budget, worth or price cannot be.
    """
    if budget is not None and not 0 < budget <= MOST_COMPUTE:
        raise ValueError(f"budget: {budget:g} is no compute; give a value in {COMPUTES}.")
    if worth is not None and not 0 <= worth <= 1:
        raise ValueError(f"worth: {worth:g} is no gain in pass rate; give a value in [0, 1].")
    if price is not None and not 0 <= price <= 1e9:
        raise ValueError(f"price: {price:g} is no price of a device-hour; give a value in [0, 1e9].")
    return _Question(forecast, budget, worth, price, axis or SameAxis()).answer()


class _Question:
    """The forecast, what is asked of it, and what its trajectories say."""

    def __init__(
        self, forecast: Forecast, budget: float | None, worth: float | None, price: float | None, axis: Axis
    ) -> None:
        self._forecast, self._axis, self._price = forecast, axis, price
        self._verdict = forecast.verdict.kind
        self._now = float(axis.to_device_hours(forecast.curve.compute[-1:])[0])
        self._is_assumed = budget is None
        self._budget = ASSUMED_BUDGET * self._now if budget is None else budget
        share = max(self._budget / self._now - 1.0, 0.0)
        self._worth = WORTH_OF_DOUBLING * min(share, 1.0) if worth is None else worth
        self._law_now = forecast.draws.law(forecast.curve.compute[-1:])[0]
        gains = self._gains(self._budget)
        self._chance, self._largest = float(np.mean(gains >= self._worth)), float(gains.max())
        self._rest = self._stretch(self._budget)

    def answer(self) -> Advice:
        if self._rest.compute <= 0:
            return self._advice(AdviceKind.STOP, "The budget is spent.", "A larger budget would.")
        if self._largest < min(self._worth, NOTHING):
            return self._advice(
                AdviceKind.STOP,
                f"No trajectory gains {NOTHING:g} by the end of the budget.",
                "Another learning rate, data or length budget would, and is another curve.",
            )
        if not self._verdict.is_described:
            return self._wait(
                NEW_LAW,
                f"No law describes this curve (verdict {_words(self._verdict)}), so no gain can be told, and no "
                "forecast says stop. Find out what happened first.",
                f"{NEW_LAW} evaluations that follow one law would, fitted from the change on.",
            )
        if self._chance >= CONTINUE_FROM:
            return self._continue()
        if self._chance < STOP_BELOW and self._verdict.is_decidable:
            return self._stop()
        return self._wait_and_see()

    def _continue(self) -> Advice:
        _, median, high = self._gain()
        change = f"If only a gain above {difference(median)} paid for the rest, it would be to wait"
        if self._verdict.is_decidable:
            return self._advice(AdviceKind.CONTINUE, self._odds(), f"{change}; above {difference(high)}, to stop.")
        return self._advice(
            AdviceKind.CONTINUE, f"{self._odds()} Where it ends is not known yet: ask again.", f"{change}."
        )

    def _stop(self) -> Advice:
        _, median, high = (max(value, 0.0) for value in self._gain())
        return self._advice(
            AdviceKind.STOP,
            f"{self._odds()} Turns that no curve foretells are not counted.",
            f"If a gain of {difference(high)} paid for the rest, it would be to wait; "
            f"of {difference(median)}, to continue.",
        )

    def _wait_and_see(self) -> Advice:
        end = float(self._axis.to_fitted(np.array([self._budget]))[0])
        plan = plan_wait(self._forecast, end, self._worth, (STOP_BELOW, CONTINUE_FROM))
        if not self._verdict.is_decidable:
            return self._wait(
                max(plan.evaluations, self._until_a_verdict(end)),
                f"{self._odds()} But no run is stopped on a verdict of {_words(self._verdict)}: it may still bend up.",
                _signs(plan, self._verdict),
            )
        if not plan.is_clear:
            return self._wait(
                self._until_a_verdict(end),
                f"{self._odds()} The evaluations still to come may leave it open.",
                _signs(plan, self._verdict),
            )
        return self._wait(
            plan.evaluations,
            f"{self._odds()} After {_evaluations(plan.evaluations)} this is clear with a probability of {CLEAR:.0%}.",
            _signs(plan, self._verdict),
        )

    def _until_a_verdict(self, end: float) -> int:
        """Evaluations that add enough compute to show a bend, as far as the budget goes."""
        now, spacing = float(self._forecast.curve.compute[-1]), evaluation_spacing(self._forecast)
        missing = max(NEW_LAW - len(self._forecast.curve), 1)
        return max(1, min(max(math.ceil(NEW_COMPUTE * now / spacing), missing), math.floor((end - now) / spacing)))

    def _wait(self, evaluations: int, reason: str, change: str) -> Advice:
        last = self._forecast.curve.compute[-1:] + evaluations * evaluation_spacing(self._forecast)
        until = min(float(self._axis.to_device_hours(last)[0]), self._budget)
        return self._advice(AdviceKind.WAIT, reason, change, evaluations, self._stretch(until))

    def _advice(
        self, kind: AdviceKind, reason: str, change: str, evaluations: int = 0, wait: Stretch | None = None
    ) -> Advice:
        return Advice(
            kind=kind,
            evaluations=evaluations,
            budget=self._budget,
            is_assumed=self._is_assumed,
            worth=self._worth,
            price=self._price,
            chance=self._chance if self._verdict.is_described and self._rest.compute > 0 else None,
            soon=self._stretch(min(self._now + SOON * self._budget, self._budget)),
            rest=self._rest,
            wait=wait,
            reason=reason,
            change=change,
        )

    def _gains(self, until: float) -> Array:
        """R(until) - R(now) of every trajectory."""
        stop = float(self._axis.to_fitted(np.array([max(until, self._now)]))[0])
        return np.asarray(self._forecast.draws.law([stop])[0] - self._law_now)

    def _stretch(self, until: float) -> Stretch:
        spent = max(until - self._now, 0.0)
        gain = None
        if self._verdict.is_described:
            low, median, high = np.quantile(self._gains(until), (0.05, 0.5, 0.95)).tolist()
            gain = (low, median, high)
        return Stretch(self._now + spent, spent, None if self._price is None else self._price * spent, gain)

    def _gain(self) -> tuple[float, float, float]:
        assert self._rest.gain is not None
        return self._rest.gain

    def _odds(self) -> str:
        low, median, high = map(difference, self._gain())
        return (
            f"{'As much compute again' if self._is_assumed else 'The rest'} gains {median} (90 %: {low} to {high}). "
            f"It gains {self._worth:.2g} or more with a chance of {chance_in_words(self._chance)}."
        )


def _signs(plan: WaitPlan, verdict: VerdictKind) -> str:
    """What the next readings would have to show."""
    several = plan.evaluations > 1
    of = f"Of the next {plan.evaluations} evaluations" if several else "Of the next evaluation"
    what = "a mean" if several else "a reading"
    says = []
    if plan.continue_from is not None:
        says.append(f"{what} of {plan.continue_from:.3f} or more would speak for continuing")
    if plan.stop_below is not None and verdict.is_decidable:
        says.append(f"{what} below {plan.stop_below:.3f} for stopping")
    if not says:
        return "Hardly any one reading would; the bend of the curve will, or a smaller gain that pays for the rest."
    return f"{of} {', '.join(says)}."


def _evaluations(number: int) -> str:
    return "1 more evaluation" if number == 1 else f"{number} more evaluations"


def _words(verdict: VerdictKind) -> str:
    return str(verdict).replace("_", " ")


def chance_in_words(probability: float) -> str:
    """In per cent; draws cannot tell more than 99 % from certain."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"
