"""Stop, continue, or wait for n more evaluations: what a forecast means for the rest of a budget.

The user names the gain in pass rate that would pay for the rest. `look_ahead.py` compares the three
choices by expected utility over the forecast of the readings, and the best one is advised. Waiting
is advised only if it is worth clearly more than the better of the other two, and the gain is not
likely anyway. To continue is advised only if the gain is about as likely as not. If nothing that is
read meanwhile can change the decision after it, the advice is to continue for that many
evaluations. The last advice is kept unless another one is clearly better.

A gain is that of the measured level, the mean of a tenth of the readings, from now to the end. So
its chance includes the noise of both levels, and can be checked.

Three verdicts decide by themselves: no_learning and broken mean stop, too_few means wait, without a
chance.
"""

from dataclasses import replace

import numpy as np

from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.scaling.decisions.advice_answer import Advice, AdviceKind, EarlierAdvice, Stretch
from rollcast.scaling.decisions.advice_words import (
    above_the_ceiling_in_words,
    caution_in_words,
    chance_in_words,
    evaluations_in_words,
    signs_in_words,
)
from rollcast.scaling.decisions.digits import compute_in_words, difference
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.look_ahead import (
    WaitPlan,
    best_wait,
    value_of_the_rest,
    waits_until,
)
from rollcast.scaling.decisions.paid_compute import Axis, SameAxis
from rollcast.scaling.decisions.settings import MIN_RECENT_READINGS, NEGLIGIBLE_GAIN
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.combined import EVEN_LEVELS

__all__ = [
    "Advice",
    "AdviceKind",
    "EarlierAdvice",
    "advise",
    "evaluation_spacing",
]

SHOWN_LEVELS = (0.05, 0.5, 0.95)
"""Quantiles of a gain that are printed."""


def advise(
    forecast: Forecast,
    budget: float | None = None,
    *,
    worth: float | None = None,
    price: float | None = None,
    axis: Axis | None = None,
    evaluations_left: int | None = None,
    last: EarlierAdvice | None = None,
    end_reason: str | None = None,
) -> Advice:
    """The advice on the rest of a budget.

    Args:
        forecast: of the run so far.
        budget: compute at which the run would end, spent compute included; None: twice the spent
            compute.
        worth: gain in pass rate that would pay for the rest; None: 0.02, and less in proportion if
            less compute is left than was spent, down to 0.002.
        price: of one device-hour, or of one unit in which the curve counts; in any currency.
        axis: maps the compute of budget and answer to that of the fit; None: they are the same.
        evaluations_left: until the budget ends; None: as many as their recent spacing makes.
        last: the advice on the same terms before the newest evaluation; None: there was none.
        end_reason: why the run ended before its budget; None: it did not.

    Raises:
        ValueError: budget, worth or price cannot be.
    """
    if budget is not None and not 0 < budget <= MOST_COMPUTE:
        raise ValueError(f"budget: {budget:g} is no compute; give a value in {COMPUTES}.")
    if worth is not None and not 0 <= worth <= 1:
        raise ValueError(f"worth: {worth:g} is no gain in pass rate; give a value in [0, 1].")
    # 1e9: largest price of one unit of compute that is accepted.
    if price is not None and not 0 <= price <= 1e9:
        raise ValueError(
            f"price: {price:g} is no price of a device-hour; give a value in [0, 1e9]."
        )
    question = _Question(forecast, budget, worth, price, axis or SameAxis(), evaluations_left, last)
    return question.answer() if end_reason is None else question.after_the_end(end_reason)


class _Question:
    """A forecast with the user's budget, worth and price, and the gains that are equally likely."""

    def __init__(
        self,
        forecast: Forecast,
        budget: float | None,
        worth: float | None,
        price: float | None,
        axis: Axis,
        evaluations_left: int | None,
        last: EarlierAdvice | None,
    ) -> None:
        self._forecast = forecast
        self._axis = axis
        self._price = price
        self._last = last
        self._verdict = forecast.verdict.kind
        self._newest_compute = float(axis.to_device_hours(forecast.curve.compute[-1:])[0])
        self._is_assumed = budget is None
        # 2.0: times the compute so far, if no budget is known; as far ahead as a verdict looks.
        self._budget = 2.0 * self._newest_compute if budget is None else budget
        share = max(self._budget / self._newest_compute - 1.0, 0.0)
        # 0.02: pass rate that as much compute again as was spent must bring, if the user names no
        # gain; less in proportion if less is left. Three runs of one recipe differ by as much (A.5
        # of the paper), so a smaller gain could not be shown.
        # 0.002: pass rate: least gain that the rest must bring by default. Otherwise it
        # shrinks to nothing with the rest, and the advice of the last evaluations turns with every
        # reading.
        self._worth = max(0.02 * min(share, 1.0), 0.002) if worth is None else worth
        self._end = self._to_fitted(self._budget)
        newest = forecast.counted_curve.pass_rate[-self._num_level_readings :]
        self._level = float(newest.mean())
        self._spacing = evaluation_spacing(forecast)
        promised = 0 if last is None else last.evaluations
        newest_fitted_compute = float(forecast.curve.compute[-1])
        self._waits = waits_until(
            newest_fitted_compute, self._end, self._spacing, evaluations_left, promised
        )
        # 0.1: share of the budget whose gain is reported separately; chosen, not measured.
        self._soon = min(
            self._newest_compute + 0.1 * self._budget, max(self._budget, self._newest_compute)
        )
        # One look ahead for everything that is asked of the forecast: it takes as long as the fit.
        self._after_waits = newest_fitted_compute + self._spacing * np.array(
            self._waits, dtype=float
        )
        requested_compute = np.concatenate(
            [self._after_waits, [self._to_fitted(self._soon), self._end]]
        )
        predicted_levels = forecast.predictive(
            requested_compute, np.concatenate([EVEN_LEVELS, SHOWN_LEVELS])
        ).T
        self._levels = predicted_levels[:, : EVEN_LEVELS.size]
        self._printed_levels = predicted_levels[:, EVEN_LEVELS.size :]
        self._gains_of_the_rest = self._levels[-1] - self._level

    def after_the_end(self, reason: str) -> Advice:
        """The advice on a run that was ended by a rule of its own."""
        return self._advice(
            AdviceKind.STOP,
            f"`stop_when` ended the run: {reason}.",
            "Another budget, worth or price is asked anew.",
        )

    def answer(self) -> Advice:
        if self._budget <= self._newest_compute:
            return self._advice(
                AdviceKind.STOP, "The budget is spent.", "A larger budget would change that."
            )
        num_missing = self._forecast.verdict.num_missing
        if num_missing:
            return self._advice(
                AdviceKind.WAIT,
                self._forecast.verdict.reason,
                f"{evaluations_in_words(num_missing)} would give one.",
                num_missing,
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
                "Another learning rate, data or length budget may gain more: that is another "
                "curve.",
            )
        wait = self._best_wait()
        kind = self._best_kind(mean_gain, wait)
        if kind is AdviceKind.WAIT and wait is not None:
            return self._wait(wait)
        likely_gain = float(np.quantile(self._gains_of_the_rest, 1.0 - self._least_chance))
        largest_worth = min(mean_gain, likely_gain)
        gain = difference(largest_worth)
        change = f"If a gain of {gain} were enough, the advice would be to continue."
        if largest_worth < NEGLIGIBLE_GAIN:
            change = "A gain that is likely would change that; none is so far."
        if kind is AdviceKind.CONTINUE:
            change = f"If you required a gain above {gain}, the advice would be to stop."
        return self._advice(kind, self._odds(), change)

    def _no_learning(self) -> Advice:
        take_off_sentence = ""
        if self._forecast.options.prior.stack is not None:
            take_off_sentence = (
                f" Of such runs of other groups {chance_in_words(self._chance())} still took off."
            )
        return self._advice(
            AdviceKind.STOP,
            f"The run has learned nothing beyond its noise.{take_off_sentence}",
            "Another learning rate, data or length budget may learn: that is another run.",
        )

    def _broken(self) -> Advice:
        at = self._forecast.verdict.at
        if at is not None:
            at = float(self._axis.to_device_hours(np.array([at]))[0])
        peak_phrase = (
            "" if at is None else f" near {compute_in_words(at, self._forecast.curve.unit)}"
        )
        return self._advice(
            AdviceKind.STOP,
            f"The run is broken: what it learned until its peak{peak_phrase} is being lost.",
            "Go back to the last checkpoint before that peak once the cause is found.",
        )

    def _wait(self, wait: WaitPlan) -> Advice:
        evaluations = evaluations_in_words(wait.evaluations)
        if wait.is_open:
            reason = f"{self._odds()} It is worth more to decide after {evaluations} than now."
            return self._advice(AdviceKind.WAIT, reason, signs_in_words(wait), wait.evaluations)
        paid = "evaluation pays for itself, the rest after it hardly"
        if wait.evaluations > 1:
            paid = f"{wait.evaluations} evaluations pay for themselves, the rest after them hardly"
        shorter = self._advice(
            AdviceKind.WAIT,
            f"{self._odds()} The next {paid}.",
            "No level that may be read there speaks for going on: ask again then.",
            wait.evaluations,
        )
        return replace(shorter, headline=f"Continue for {evaluations}")

    @property
    def _clear_difference(self) -> float:
        """Pass rate by which a choice must be better to count as clearly better."""
        # 0.1: share of worth by which a choice is clearly better. A wait must be that much better
        # than stop and continue, since it costs a user's attention; with 0.3 the utility on curves
        # of other groups is 4 % less. The last advice stays unless another one is that much better.
        return max(0.1 * self._worth, NEGLIGIBLE_GAIN)

    @property
    def _least_chance(self) -> float:
        """Chance of the wanted gain from which on a whole rest is advised."""
        # 0.05 less after an advice to continue: one reading must not turn it.
        is_going_on = self._last is not None and self._last.kind is AdviceKind.CONTINUE
        return 0.4 if is_going_on else 0.45

    def _best_kind(self, mean_gain: float, wait: WaitPlan | None) -> AdviceKind:
        """The choice of most value, of equal ones to stop; a chance that is clear or low decides
        before that.
        """
        values = {AdviceKind.STOP: 0.0, AdviceKind.CONTINUE: mean_gain - self._worth}
        if wait is not None:
            values[AdviceKind.WAIT] = wait.value - self._clear_difference
        if self._last is not None and self._last.kind in values:
            values[self._last.kind] += self._clear_difference
        best = max(values, key=values.__getitem__)
        # If the gain is less likely than not, a few large ones make the mean, and forecasts
        # overstate these. If it is likely, the readings of a wait rarely change the decision. Both
        # limits were chosen on runs of other groups (lab notes, "Wrong continuations"); others
        # near them lose little.
        chance = self._chance()
        if best is AdviceKind.CONTINUE and chance < self._least_chance:
            return AdviceKind.STOP
        is_likely = chance >= 0.7 and mean_gain > self._worth
        if best is AdviceKind.WAIT and wait is not None and wait.is_open and is_likely:
            return AdviceKind.CONTINUE
        return best

    def _best_wait(self) -> WaitPlan | None:
        """The wait of most value, or None if the budget ends before another evaluation.

        The end of the last wait is kept unless another wait is clearly better.
        """
        if not self._waits:
            return None
        newest_fitted_compute = float(self._forecast.curve.compute[-1])
        stack = self._forecast.options.prior.stack
        # 0.5: stack.persistence of a law without a stack: that of a random walk.
        return best_wait(
            self._waits,
            self._levels[: len(self._waits)],
            self._levels[-1],
            (self._after_waits - newest_fitted_compute) / (self._end - newest_fitted_compute),
            self._level,
            self._worth,
            0.5 if stack is None else stack.persistence,
            0 if self._last is None else self._last.evaluations,
            self._clear_difference,
        )

    def _advice(self, kind: AdviceKind, reason: str, change: str, evaluations: int = 0) -> Advice:
        is_known = self._forecast.verdict.num_missing == 0
        headline = kind.capitalize()
        wait = None
        if kind is AdviceKind.WAIT:
            headline = f"Wait for {evaluations_in_words(evaluations)}"
            last = self._forecast.curve.compute[-1:] + evaluations * self._spacing
            until = min(
                float(self._axis.to_device_hours(last)[0]), max(self._budget, self._newest_compute)
            )
            printed_levels = self._printed_levels[
                self._waits.index(evaluations) if evaluations in self._waits else -1
            ]
            wait = self._stretch(until, printed_levels)
        has_rest = self._forecast.verdict.has_forecast and self._budget > self._newest_compute
        return Advice(
            kind=kind,
            headline=headline if is_known else None,
            evaluations=evaluations,
            budget=self._budget,
            is_assumed=self._is_assumed,
            worth=self._worth,
            price=self._price,
            level=self._level,
            mean_gain=value_of_the_rest(self._gains_of_the_rest) if has_rest else None,
            chance=self._chance() if has_rest else None,
            soon=self._stretch(self._soon, self._printed_levels[-2]),
            rest=self._stretch(self._budget, self._printed_levels[-1]),
            wait=wait,
            reason=reason,
            change=change,
        )

    def _to_fitted(self, compute: float) -> float:
        """Compute that is paid for, not before now, on the axis of the fit."""
        return float(self._axis.to_fitted(np.array([max(compute, self._newest_compute)]))[0])

    @property
    def _num_level_readings(self) -> int:
        """Newest readings of the level: a tenth of those that the whole budget makes, a fifth of
        the curve at most.
        """
        curve = self._forecast.counted_curve
        to_come = (self._end - float(curve.compute[-1])) / evaluation_spacing(self._forecast)
        # 10: the level is the mean of a tenth of the readings of the whole budget.
        of_the_budget = int((len(curve) + to_come) / 10)
        # Of a rising run the mean of more readings would lie far below its level.
        # 5: readings so far for each one of the level: at half of a budget a tenth of all is a
        # fifth of those.
        count = min(of_the_budget, len(curve) // 5)
        return max(MIN_RECENT_READINGS, count)

    def _stretch(self, until: float, levels: Array) -> Stretch:
        """`levels` (3,) at its end: 5 %, median, 95 %."""
        spent = max(until - self._newest_compute, 0.0)
        gain = None
        if self._forecast.verdict.has_forecast:
            low, median, high = (levels - self._level).tolist()
            gain = (low, median, high)
        money = None if self._price is None else self._price * spent
        return Stretch(self._newest_compute + spent, spent, money, gain)

    def _chance(self) -> float:
        stack = self._forecast.options.prior.stack
        if self._verdict is VerdictKind.NO_LEARNING and stack is not None:
            return stack.late_take_off
        return float(np.mean(self._gains_of_the_rest >= self._worth))

    def _odds(self) -> str:
        low, median, high = map(difference, (self._printed_levels[-1] - self._level).tolist())
        mean_gain = difference(value_of_the_rest(self._gains_of_the_rest))
        which = "As much compute again" if self._is_assumed else "The rest"
        level = f"on the level now, {self._level:.3f} (newest {self._num_level_readings} readings)"
        return (
            f"{which} gains {median} (90 %: {low} to {high}) {level}, {mean_gain} on average with "
            f"the best checkpoint kept. It gains {self._worth:.2g} or more with a chance of "
            f"{chance_in_words(self._chance())}."
            f"{above_the_ceiling_in_words(self._forecast, self._printed_levels[-1][1])}"
            f"{caution_in_words(self._forecast)}"
        )


def evaluation_spacing(forecast: Forecast) -> float:
    """Recent compute from one evaluation to the next, on the fitted axis."""
    compute = forecast.counted_curve.compute
    recent = compute[-max(2, compute.size // 3) - 1 :]
    spacing = float(np.median(np.diff(recent))) if recent.size > 1 else float(compute[-1])
    return max(spacing, 1e-9 * float(compute[-1]))
