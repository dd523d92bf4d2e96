"""Stop, continue, or wait for n more evaluations: what a forecast means for the rest of a budget.

The user names the gain in pass rate that would pay for the rest. `look_ahead.py` compares the three choices by expected
utility over the forecast of the readings, and the best one is advised. Waiting is advised only if it is worth clearly
more than the better of the other two.

A gain is that of the measured level, the mean of a tenth of the readings, from now to the end. So its chance includes
the noise of both levels, and can be checked.

Three verdicts decide by themselves: no_learning and broken mean stop, too_few means wait, without a chance.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.scaling.decisions.digits import difference, place
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.look_ahead import WaitPlan, best_wait, value_of_the_rest, waits_until
from rollcast.scaling.decisions.settings import (
    DEFAULT_BUDGET_FACTOR,
    DEFAULT_PERSISTENCE,
    GAIN_OF_DOUBLING,
    MAX_PRICE,
    MIN_READINGS_PER_RECENT,
    MIN_RECENT_READINGS,
    MIN_WAIT_VALUE_SHARE,
    NEGLIGIBLE_GAIN,
    RECENT_READINGS_DIVISOR,
    SOON_BUDGET_SHARE,
)
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.combined import EVEN_LEVELS

SHOWN_LEVELS = (0.05, 0.5, 0.95)
"""Quantiles of a gain that are printed."""


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
        gain: of the measured level in pass rate: 5 %, median, 95 %; None if nothing is forecast.
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
        headline: what to do, in a few words; None before there are evaluations enough for a forecast.
        evaluations: to wait for; 0 for stop and continue.
        budget: compute at which the run would end.
        is_assumed: no budget was given; it is twice the compute so far.
        worth: gain in pass rate that would pay for the rest.
        price: of one unit of compute, or None.
        mean_gain: what the rest gains on average if the checkpoint of now is kept in case it loses: the largest
            `worth` with which it pays to continue. None if nothing is forecast.
        chance: that the rest gains `worth` or more; that a run which has learned nothing still takes off; None if there
            is no rest, or nothing is forecast.
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
    """A forecast with the user's budget, worth and price, and the gains that are equally likely."""

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
        self._end = self._fitted(self._budget)
        self._level = self._level_now()
        self._spacing = evaluation_spacing(forecast)
        self._waits = waits_until(float(forecast.curve.compute[-1]), self._end, self._spacing)
        self._soon = min(self._now + SOON_BUDGET_SHARE * self._budget, max(self._budget, self._now))
        # One look ahead for everything that is asked of the forecast: it takes as long as the fit.
        self._after_waits = float(forecast.curve.compute[-1]) + self._spacing * np.array(self._waits, dtype=float)
        asked = np.concatenate([self._after_waits, [self._fitted(self._soon), self._end]])
        found = forecast.predictive(asked, np.concatenate([EVEN_LEVELS, SHOWN_LEVELS])).T
        self._levels = found[:, : EVEN_LEVELS.size]
        self._shown = found[:, EVEN_LEVELS.size :]
        self._gains_of_the_rest = self._levels[-1] - self._level

    def answer(self) -> Advice:
        if self._budget <= self._now:
            return self._advice(AdviceKind.STOP, "The budget is spent.", "A larger budget would change that.")
        missing = self._forecast.verdict.missing
        if missing:
            return self._advice(
                AdviceKind.WAIT, self._forecast.verdict.reason, f"{_evaluations(missing)} would give one.", missing
            )
        if self._verdict is VerdictKind.NO_LEARNING:
            return self._no_learning()
        if self._verdict is VerdictKind.BROKEN:
            return self._broken()
        mean_gain = value_of_the_rest(self._gains_of_the_rest)
        if mean_gain < NEGLIGIBLE_GAIN:
            return self._advice(
                AdviceKind.STOP,
                f"The rest gains less than {NEGLIGIBLE_GAIN:g} on average.",
                "Another learning rate, data or length budget may gain more: that is another curve.",
            )
        wait = self._best_wait()
        best_at_once = max(mean_gain - self._worth, 0.0)
        least = best_at_once + max(MIN_WAIT_VALUE_SHARE * self._worth, NEGLIGIBLE_GAIN)
        if wait is not None and wait.value > least:
            return self._wait(wait)
        if mean_gain > self._worth:
            return self._advice(
                AdviceKind.CONTINUE,
                self._odds(),
                f"If you required a gain above {difference(mean_gain)}, the advice would be to stop.",
            )
        return self._advice(
            AdviceKind.STOP,
            self._odds(),
            f"If a gain of {difference(mean_gain)} were enough, the advice would be to continue.",
        )

    def _no_learning(self) -> Advice:
        known = ""
        if self._forecast.options.prior.stack is not None:
            known = f" Of such runs of other groups {chance_in_words(self._chance())} still took off."
        return self._advice(
            AdviceKind.STOP,
            f"The run has learned nothing beyond its noise.{known}",
            "Another learning rate, data or length budget may learn: that is another run.",
        )

    def _broken(self) -> Advice:
        at = self._forecast.verdict.at
        if at is not None:
            at = float(self._axis.to_device_hours(np.array([at]))[0])
        near = "" if at is None else f" near {place(at, self._forecast.curve.unit)}"
        return self._advice(
            AdviceKind.STOP,
            f"The run is broken: what it learned until its peak{near} is being lost.",
            "Go back to the last checkpoint before that peak once the cause is found.",
        )

    def _wait(self, wait: WaitPlan) -> Advice:
        return self._advice(
            AdviceKind.WAIT,
            f"{self._odds()} It is worth more to decide after {_evaluations(wait.evaluations)} than now.",
            _signs(wait),
            wait.evaluations,
        )

    def _best_wait(self) -> WaitPlan | None:
        """The wait of most value, or None if the budget ends before another evaluation."""
        if not self._waits:
            return None
        now = float(self._forecast.curve.compute[-1])
        stack = self._forecast.options.prior.stack
        return best_wait(
            self._waits,
            self._levels[: len(self._waits)],
            self._levels[-1],
            (self._after_waits - now) / (self._end - now),
            self._level,
            self._worth,
            DEFAULT_PERSISTENCE if stack is None else stack.persistence,
        )

    def _advice(self, kind: AdviceKind, reason: str, change: str, evaluations: int = 0) -> Advice:
        is_known = self._forecast.verdict.missing == 0
        wait = None
        if kind is AdviceKind.WAIT:
            last = self._forecast.curve.compute[-1:] + evaluations * self._spacing
            until = min(float(self._axis.to_device_hours(last)[0]), max(self._budget, self._now))
            shown = self._shown[self._waits.index(evaluations) if evaluations in self._waits else -1]
            wait = self._stretch(until, shown)
        headline = kind.capitalize() if kind is not AdviceKind.WAIT else f"Wait for {_evaluations(evaluations)}"
        has_rest = self._forecast.verdict.has_forecast and self._budget > self._now
        return Advice(
            kind=kind,
            headline=headline if is_known else None,
            evaluations=evaluations,
            budget=self._budget,
            is_assumed=self._is_assumed,
            worth=self._worth,
            price=self._price,
            mean_gain=value_of_the_rest(self._gains_of_the_rest) if has_rest else None,
            chance=self._chance() if has_rest else None,
            soon=self._stretch(self._soon, self._shown[-2]),
            rest=self._stretch(self._budget, self._shown[-1]),
            wait=wait,
            reason=reason,
            change=change,
        )

    def _fitted(self, compute: float) -> float:
        """Compute that is paid for, not before now, on the axis of the fit."""
        return float(self._axis.to_fitted(np.array([max(compute, self._now)]))[0])

    def _level_now(self) -> float:
        """Mean of the newest readings: a tenth of those that the whole budget makes, a fifth of the curve at most."""
        curve = self._forecast.counted
        to_come = (self._end - float(curve.compute[-1])) / evaluation_spacing(self._forecast)
        of_the_budget = int((len(curve) + to_come) / RECENT_READINGS_DIVISOR)
        # Of a rising run the mean of more readings would lie far below its level.
        count = min(of_the_budget, len(curve) // MIN_READINGS_PER_RECENT)
        return float(curve.pass_rate[-max(MIN_RECENT_READINGS, count) :].mean())

    def _stretch(self, until: float, levels: Array) -> Stretch:
        """`levels` (3,) at its end: 5 %, median, 95 %."""
        spent = max(until - self._now, 0.0)
        gain = None
        if self._forecast.verdict.has_forecast:
            low, median, high = (levels - self._level).tolist()
            gain = (low, median, high)
        money = None if self._price is None else self._price * spent
        return Stretch(self._now + spent, spent, money, gain)

    def _chance(self) -> float:
        stack = self._forecast.options.prior.stack
        if self._verdict is VerdictKind.NO_LEARNING and stack is not None:
            return stack.late_take_off
        return float(np.mean(self._gains_of_the_rest >= self._worth))

    def _odds(self) -> str:
        low, median, high = map(difference, (self._shown[-1] - self._level).tolist())
        mean_gain = difference(value_of_the_rest(self._gains_of_the_rest))
        which = "As much compute again" if self._is_assumed else "The rest"
        caution = ""
        if not self._verdict.is_described:
            caution = " No law describes the curve: find out what happened first."
        elif not self._verdict.is_decidable:
            caution = " The end is not known well: ask again."
        return (
            f"{which} gains {median} (90 %: {low} to {high}), {mean_gain} on average with the best checkpoint kept. "
            f"It gains {self._worth:.2g} or more with a chance of {chance_in_words(self._chance())}.{caution}"
        )


def evaluation_spacing(forecast: Forecast) -> float:
    """Recent compute from one evaluation to the next, on the fitted axis."""
    compute = forecast.counted.compute
    recent = compute[-max(2, compute.size // 3) - 1 :]
    spacing = float(np.median(np.diff(recent))) if recent.size > 1 else float(compute[-1])
    return max(spacing, 1e-9 * float(compute[-1]))


def _signs(wait: WaitPlan) -> str:
    """What the next readings would have to show."""
    goes_on = None if wait.continue_from is None else f"{wait.continue_from:.3f} or more would speak for continuing"
    if goes_on is None and wait.stop_below is None:
        return "Hardly any one reading would; the slope of the curve will."
    if wait.stop_below is None:
        return f"A level of {goes_on}."
    if goes_on is None:
        return f"A level below {wait.stop_below:.3f} would speak for stopping."
    return f"A level of {goes_on}, below {wait.stop_below:.3f} for stopping."


def _evaluations(number: int) -> str:
    return "1 more evaluation" if number == 1 else f"{number} more evaluations"


def chance_in_words(probability: float) -> str:
    """A probability in per cent. Draws cannot separate more than 99 % from certainty."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"
