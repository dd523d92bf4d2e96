"""Stop, continue, or wait for n more evaluations: what a forecast means for the rest of a budget.

The user names the gain that would pay for the rest of the budget. The chance that continuing pays is the share of
equally likely trajectories that gain as much by the end of the budget:

    below 5 %        stop
    50 % or more     continue: more likely than not the rest brings the gain
    between          wait for n more evaluations and ask again; `waiting` finds n

The trajectories are those of the fitted curve, without turns to come: these alone bring 0.02 with 6 % until twice the
compute, so hardly any run could be stopped. A verdict that bars decisions never leads to stop, unless no trajectory
gains anything. If no law describes the curve, there is no gain to report.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.scaling.decisions.digits import difference
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import (
    CLEAR_PROBABILITY,
    CONTINUE_FROM_CHANCE,
    DEFAULT_BUDGET_FACTOR,
    GAIN_OF_DOUBLING,
    MAX_PRICE,
    MIN_WAIT_COMPUTE_SHARE,
    NEGLIGIBLE_GAIN,
    NEW_LAW_EVALUATIONS,
    SOON_BUDGET_SHARE,
    STOP_BELOW_CHANCE,
)
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.decisions.waiting import WaitPlan, evaluation_spacing, plan_wait
from rollcast.scaling.law.curve import Array


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
    """A stretch of compute from now on, and its gain.

    Attributes:
        until: compute at its end.
        compute: from now to its end.
        money: its price; None without a price.
        gain: of the law in pass rate: 5 %, median, 95 %; None if no law describes the curve.
    """

    until: float
    compute: float
    money: float | None
    gain: tuple[float, float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Every attribute for JSON, the gain as q05, q50 and q95."""
        gain = None if self.gain is None else dict(zip(("q05", "q50", "q95"), self.gain, strict=True))
        return {"until": self.until, "compute": self.compute, "money": self.money, "gain": gain}


@dataclass(frozen=True)
class Advice:
    """What to do with the rest of a budget. Compute is in device-hours, or in the unit of the curve.

    Attributes:
        evaluations: to wait for; 0 for stop and continue.
        budget: compute at which the run would end.
        is_assumed: no budget was given; it is twice the compute so far.
        worth: gain in pass rate that would pay for the rest.
        price: of one unit of compute, or None.
        chance: that the rest gains `worth` or more on the fitted curve, without turns to come; None if there is no
            rest, or no law describes the curve.
        soon: the next tenth of the budget, or the rest if that is less.
        rest: all of the rest.
        wait: until the end of the evaluations to wait for; None for stop and continue.
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
        """Every attribute and the headline for JSON, intervals as q05, q50 and q95."""
        stretches = {
            "soon": self.soon.to_dict(),
            "rest": self.rest.to_dict(),
            "wait": None if self.wait is None else self.wait.to_dict(),
        }
        return {"kind": str(self.kind), "headline": self.headline} | vars(self) | {"kind": str(self.kind)} | stretches

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
        budget: compute at which the run would end, spent compute included; None: twice the spent compute.
        worth: gain in pass rate that would pay for the rest; None: 0.02, and less in proportion if less compute is left
            than was spent.
        price: of one device-hour, or of one unit in which the curve counts; in any currency.
        axis: maps the compute of budget and answer to that of the fit; None: they are the same.

    Raises:
        ValueError: budget, worth or price cannot be.
    """
    if budget is not None and not 0 < budget <= MOST_COMPUTE:
        raise ValueError(f"budget: {budget:g} is no compute; give a value in {COMPUTES}.")
    if worth is not None and not 0 <= worth <= 1:
        raise ValueError(f"worth: {worth:g} is no gain in pass rate; give a value in [0, 1].")
    if price is not None and not 0 <= price <= MAX_PRICE:
        raise ValueError(f"price: {price:g} is no price of a device-hour; give a value in [0, 1e9].")
    return _Question(forecast, budget, worth, price, axis or SameAxis()).answer()


class _Question:
    """A forecast with the user's budget, worth and price, and the gains of its trajectories."""

    def __init__(
        self, forecast: Forecast, budget: float | None, worth: float | None, price: float | None, axis: Axis
    ) -> None:
        self._forecast = forecast
        self._axis = axis
        self._price = price
        self._verdict = forecast.verdict.kind
        self._now = float(axis.to_device_hours(forecast.curve.compute[-1:])[0])
        self._is_assumed = budget is None
        self._budget = DEFAULT_BUDGET_FACTOR * self._now if budget is None else budget
        share = max(self._budget / self._now - 1.0, 0.0)
        self._worth = GAIN_OF_DOUBLING * min(share, 1.0) if worth is None else worth
        self._law_now = forecast.draws.law(forecast.curve.compute[-1:])[0]
        gains = self._gains(self._budget)
        self._chance = float(np.mean(gains >= self._worth))
        self._largest = float(gains.max())
        self._rest = self._stretch(self._budget)

    def answer(self) -> Advice:
        if self._rest.compute <= 0:
            return self._advice(AdviceKind.STOP, "The budget is spent.", "A larger budget would.")
        # Before the verdict: a run that no trajectory lifts is stopped whatever kind of curve it is.
        if self._largest < min(self._worth, NEGLIGIBLE_GAIN):
            return self._advice(
                AdviceKind.STOP,
                f"No trajectory gains {NEGLIGIBLE_GAIN:g} by the end of the budget.",
                "Another learning rate, data or length budget would, and is another curve.",
            )
        if not self._verdict.is_described:
            return self._wait(
                NEW_LAW_EVALUATIONS,
                f"No law describes this curve (verdict {_words(self._verdict)}), so no gain is reported and the run "
                "is not stopped. Find out what happened first.",
                f"{NEW_LAW_EVALUATIONS} evaluations that follow one law would, fitted from the change on.",
            )
        if self._chance >= CONTINUE_FROM_CHANCE:
            return self._continue()
        if self._chance < STOP_BELOW_CHANCE and self._verdict.is_decidable:
            return self._stop()
        return self._wait_and_see()

    def _continue(self) -> Advice:
        _, median, high = self._gain()
        change = f"If you required a gain above {difference(median)}, the advice would be to wait"
        if self._verdict.is_decidable:
            return self._advice(AdviceKind.CONTINUE, self._odds(), f"{change}; above {difference(high)}, to stop.")
        return self._advice(AdviceKind.CONTINUE, f"{self._odds()} The end is not known yet: ask again.", f"{change}.")

    def _stop(self) -> Advice:
        _, median, high = (max(value, 0.0) for value in self._gain())
        return self._advice(
            AdviceKind.STOP,
            f"{self._odds()} Turns that no curve foretells are not counted.",
            f"If a gain of {difference(high)} were enough, the advice would be to wait; "
            f"of {difference(median)}, to continue.",
        )

    def _wait_and_see(self) -> Advice:
        end = float(self._axis.to_fitted(np.array([self._budget]))[0])
        plan = plan_wait(self._forecast, end, self._worth, (STOP_BELOW_CHANCE, CONTINUE_FROM_CHANCE))
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
            f"{self._odds()} After {_evaluations(plan.evaluations)} this is clear with a probability of "
            f"{CLEAR_PROBABILITY:.0%}.",
            _signs(plan, self._verdict),
        )

    def _until_a_verdict(self, end: float) -> int:
        """Evaluations that add enough compute to show a bend, as far as the budget goes."""
        now = float(self._forecast.curve.compute[-1])
        spacing = evaluation_spacing(self._forecast)
        missing = max(NEW_LAW_EVALUATIONS - len(self._forecast.curve), 1)
        to_bend = math.ceil(MIN_WAIT_COMPUTE_SHARE * now / spacing)
        until_end = math.floor((end - now) / spacing)
        return max(1, min(max(to_bend, missing), until_end))

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
            soon=self._stretch(min(self._now + SOON_BUDGET_SHARE * self._budget, self._budget)),
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
        money = None if self._price is None else self._price * spent
        return Stretch(self._now + spent, spent, money, gain)

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
    """A probability in per cent. Draws cannot separate more than 99 % from certainty."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"
