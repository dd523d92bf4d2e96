"""Stop, continue or wait: against sums written out, and against what must follow
from more or less.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rollcast.scaling.decisions.advice import AdviceKind, advise, evaluation_spacing
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.look_ahead import WaitPlan
from rollcast.scaling.decisions.settings import NEGLIGIBLE_GAIN
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior


def fitted(compute: Array, pass_rate: Array, prior: Prior = DEFAULT_PRIOR) -> Forecast:
    return fit(Curve.from_points(compute, pass_rate), FitOptions(prior=prior))


def law(
    stop: float,
    *,
    noise: float = 0.006,
    points: int = 40,
    seed: int = 0,
    prior: Prior = DEFAULT_PRIOR,
) -> Forecast:
    compute: NDArray[np.float64] = np.linspace(stop / points, stop, points)
    pass_rate = SigmoidParameters(0.2, 0.7, 1.7, 1.0).pass_rate(compute)
    scatter = noise * np.random.default_rng(seed).standard_normal(points)
    return fitted(compute, np.clip(pass_rate + scatter, 0, 1), prior)


def collapsed() -> Forecast:
    compute: NDArray[np.float64] = np.arange(1.0, 41.0, dtype=np.float64)
    pass_rate = np.where(
        compute < 25, SigmoidParameters(0.2, 0.7, 1.7, 8.0).pass_rate(compute), 0.3
    )
    return fitted(compute, pass_rate + 0.004 * np.random.default_rng(0).standard_normal(40))


def flat() -> Forecast:
    compute: NDArray[np.float64] = np.arange(1.0, 26.0, dtype=np.float64)
    return fitted(compute, 0.5 + 0.004 * np.random.default_rng(0).standard_normal(25))


@cache
def cases() -> dict[str, Forecast]:
    return {
        "ended": law(12.0, prior=LAW_PRIOR),
        "bent": law(3.0),
        "bent by the law alone": law(3.0, prior=LAW_PRIOR),
        "noisy": law(6.0, noise=0.02),
        "early": law(0.4),
        "few": law(0.5, points=3),
        "flat": flat(),
        "collapsed": collapsed(),
    }


FORECAST = ["ended", "bent", "bent by the law alone", "noisy", "early"]
"""Cases whose advice follows from utilities; the verdict decides the others."""
NAMES = st.sampled_from([*FORECAST, "few", "flat", "collapsed"])
BUDGETS = st.floats(0.5, 20.0)
"""Times the compute so far."""
WORTHS = st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 0.05))


@settings(max_examples=25)
@given(NAMES, BUDGETS, WORTHS, WORTHS)
def test_a_higher_price_never_turns_stop_into_continue_nor_raises_the_chance(
    name: str, times: float, one: float, other: float
) -> None:
    forecast = cases()[name]
    budget = times * float(forecast.curve.compute[-1])
    less, more = (advise(forecast, budget, worth=worth) for worth in sorted((one, other)))
    if less.kind is AdviceKind.STOP:
        assert more.kind is AdviceKind.STOP
    if more.kind is AdviceKind.CONTINUE:
        assert less.kind is not AdviceKind.STOP
    if less.chance is not None and more.chance is not None:
        assert less.chance >= more.chance
    assert less.rest == more.rest
    assert less.mean_gain == more.mean_gain, (
        "what the rest brings does not depend on what is asked of it"
    )


@settings(max_examples=25)
@given(NAMES, BUDGETS, WORTHS, st.floats(0.0, 1e4))
def test_a_price_only_scales(name: str, times: float, worth: float, price: float) -> None:
    forecast = cases()[name]
    budget = times * float(forecast.curve.compute[-1])
    free = advise(forecast, budget, worth=worth)
    paid = advise(forecast, budget, worth=worth, price=price)
    assert (free.kind, free.chance, free.mean_gain, free.evaluations, free.reason, free.change) == (
        paid.kind,
        paid.chance,
        paid.mean_gain,
        paid.evaluations,
        paid.reason,
        paid.change,
    )
    for without, stretch in (
        (free.soon, paid.soon),
        (free.rest, paid.rest),
        (free.wait, paid.wait),
    ):
        if without is not None and stretch is not None:
            assert without.money is None
            assert stretch.money == pytest.approx(price * stretch.compute)
            assert (without.gain, without.compute) == (stretch.gain, stretch.compute)


def level_by_hand(forecast: Forecast, budget: float) -> float:
    """Mean of a tenth of all readings that the budget makes, a fifth of those so far at most, and
    three at least.
    """
    readings = forecast.curve.pass_rate.tolist()
    spacing = float(forecast.curve.compute[-1] - forecast.curve.compute[-2])
    whole = len(readings) + (budget - float(forecast.curve.compute[-1])) / spacing
    count = max(3, min(int(whole / 10 + 1e-9), len(readings) // 5))
    newest = readings[-count:]
    return float(sum(newest) / len(newest))


@pytest.mark.parametrize("name", FORECAST)
def test_chance_and_gains_are_sums_over_a_fine_forecast_of_the_end(name: str) -> None:
    """2,000 equally likely ends instead of the 64 that the advice takes."""
    forecast = cases()[name]
    budget = 2.512 * float(forecast.curve.compute[-1])
    level = level_by_hand(forecast, budget)
    ends = forecast.predictive([budget], (np.arange(2000) + 0.5) / 2000)[:, 0].tolist()
    gains = sorted(end - level for end in ends)
    kept = sum(max(0.0, gain) for gain in gains) / len(gains)
    for worth in (gains[100], gains[1000], gains[1800]):
        advice = advise(forecast, budget, worth=max(worth, 0.0))
        counted = sum(gain >= max(worth, 0.0) for gain in gains) / len(gains)
        assert advice.chance == pytest.approx(counted, abs=0.02)
        assert advice.mean_gain == pytest.approx(kept, abs=0.002)
        low, median, high = gains[100], gains[1000], gains[1900]
        assert advice.rest.gain == pytest.approx((low, median, high), abs=0.003)


@pytest.mark.parametrize("name", FORECAST)
def test_continue_turns_to_stop_at_the_mean_gain_or_where_the_gain_becomes_unlikely(
    name: str,
) -> None:
    """Before another evaluation there is nothing to wait for, so only the two choices are left."""
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    budget = now + 0.9 * evaluation_spacing(forecast)
    mean = advise(forecast, budget).mean_gain
    assert mean is not None
    assert mean > NEGLIGIBLE_GAIN

    def is_likely(worth: float) -> bool:
        chance = advise(forecast, budget, worth=worth).chance
        assert chance is not None
        return chance >= 0.45

    worths = np.linspace(0.0, 1.2 * mean, 61)
    kinds = [advise(forecast, budget, worth=float(worth)).kind for worth in worths]
    expected = [
        AdviceKind.CONTINUE if worth < mean and is_likely(float(worth)) else AdviceKind.STOP
        for worth in worths
    ]
    assert kinds == expected
    assert set(kinds) == {AdviceKind.CONTINUE, AdviceKind.STOP}
    for times in (1.5, 4.0):
        further = advise(forecast, times * now).mean_gain
        assert further is not None
        assert advise(forecast, times * now, worth=further * 1.001).kind is not AdviceKind.CONTINUE


@pytest.mark.parametrize("name", FORECAST)
def test_a_rest_that_costs_next_to_nothing_is_not_waited_for_and_one_at_any_price_is_stopped(
    name: str,
) -> None:
    forecast = cases()[name]
    budget = 3.0 * float(forecast.curve.compute[-1])
    assert advise(forecast, budget, worth=1.0).kind is AdviceKind.STOP
    assert advise(forecast, budget, worth=0.0).kind is AdviceKind.CONTINUE
    assert advise(forecast, budget, worth=0.0009).kind is AdviceKind.CONTINUE


@settings(max_examples=25)
@given(NAMES, BUDGETS, WORTHS)
def test_verdicts_that_decide_by_themselves_do_so_at_any_price(
    name: str, times: float, worth: float
) -> None:
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    advice = advise(forecast, times * now, worth=worth)
    ends_the_run = forecast.verdict.kind in (VerdictKind.NO_LEARNING, VerdictKind.BROKEN)
    if times <= 1 or ends_the_run:
        assert advice.kind is AdviceKind.STOP
    elif forecast.verdict.kind is VerdictKind.TOO_FEW:
        assert (advice.kind, advice.evaluations) == (AdviceKind.WAIT, forecast.verdict.num_missing)


@settings(max_examples=25)
@given(NAMES, BUDGETS)
def test_stretches_lie_within_the_budget_and_inside_one_another(name: str, times: float) -> None:
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    advice = advise(forecast, times * now, price=3.0)
    assert advice.soon.compute <= advice.rest.compute + 1e-9
    assert advice.rest.until == pytest.approx(max(times, 1.0) * now)
    assert advice.soon.compute == pytest.approx(min(0.1 * times * now, max(times - 1, 0) * now))
    assert (
        (advice.wait is None) == (advice.evaluations == 0) == (advice.kind is not AdviceKind.WAIT)
    )
    if advice.wait is not None:
        assert advice.wait.compute <= advice.rest.compute + 1e-9
    if advice.soon.gain is not None and advice.rest.gain is not None:
        assert advice.soon.gain[2] <= advice.rest.gain[2] + 0.01, (
            "the upper side opens with the distance"
        )


def test_a_gain_above_the_headroom_is_explained() -> None:
    """The forecast of readings may pass A, which is the ceiling only if gains end."""
    num_explained = 0
    for forecast in cases().values():
        for times in (1.5, 2.0, 8.0):
            advice = advise(forecast, times * float(forecast.curve.compute[-1]))
            if "on the level now" not in advice.reason:
                continue
            assert advice.rest.gain is not None
            headroom = float(forecast.asymptote((0.5,))[0]) - advice.level
            is_above = forecast.verdict.is_described and advice.rest.gain[1] > headroom
            assert ("The end lies above A" in advice.reason) == is_above
            num_explained += is_above
    assert num_explained > 0


def test_each_kind_of_curve_gets_the_advice_that_it_calls_for() -> None:
    forecasts = cases()
    assert forecasts["ended"].verdict.kind is VerdictKind.SATURATED
    assert advise(forecasts["ended"], 40.0).headline == "Stop"
    assert advise(forecasts["bent"], 6.0).headline == "Continue"
    assert advise(forecasts["early"], 6.0).headline == "Continue"
    fell = advise(forecasts["collapsed"], 60.0)
    assert (fell.headline, fell.chance, fell.mean_gain, fell.rest.gain) == (
        "Stop",
        None,
        None,
        None,
    )
    assert "The run is broken" in fell.reason
    quiet = advise(forecasts["flat"], 30.0, worth=0.02)
    assert quiet.headline == "Stop"
    learned = DEFAULT_PRIOR.stack
    assert learned is not None
    assert quiet.chance == learned.late_take_off
    assert f"{100 * learned.late_take_off:.0f} % still took off" in quiet.reason
    few = advise(forecasts["few"], 6.0)
    assert (few.kind, few.evaluations) == (AdviceKind.WAIT, 2)
    assert (few.headline, few.chance, few.mean_gain, few.rest.gain) == (None, None, None, None)
    spent = advise(forecasts["bent"], 3.0)
    assert (spent.headline, spent.reason, spent.chance, spent.mean_gain) == (
        "Stop",
        "The budget is spent.",
        None,
        None,
    )
    assumed = advise(forecasts["bent"])
    assert (assumed.is_assumed, assumed.budget) == (True, pytest.approx(6.0))
    assert "As much compute again" in assumed.reason


def test_the_words_of_the_change_name_the_price_at_which_the_advice_flips() -> None:
    going_on = advise(cases()["bent"], 6.0, worth=0.02)
    assert going_on.kind is AdviceKind.CONTINUE
    words = going_on.change.removeprefix("If you required a gain above ")
    limit = float(words.removesuffix(", the advice would be to stop."))
    assert advise(cases()["bent"], 6.0, worth=limit + 0.001).kind is not AdviceKind.CONTINUE
    stopped = advise(cases()["bent"], 6.0, worth=0.9)
    assert (
        stopped.change == f"If a gain of {limit:.3f} were enough, the advice would be to continue."
    )


def test_a_wait_is_advised_near_the_price_at_which_the_choice_changes() -> None:
    """At the price at which stop and continue are worth the same there is most to learn from more
    evaluations.
    """
    limit = advise(cases()["early"], 8.0).mean_gain
    assert limit is not None
    asked = advise(cases()["early"], 8.0, worth=limit)
    assert asked.kind is AdviceKind.WAIT
    # A run that has hardly begun gains most in its next evaluations: none of them can make the
    # whole rest pay.
    assert asked.headline == f"Continue for {asked.evaluations} more evaluations"
    assert (
        f"The next {asked.evaluations} evaluations pay for themselves, the rest after them hardly."
        in asked.reason
    )
    assert asked.wait is not None
    assert asked.wait.compute == pytest.approx(0.01 * asked.evaluations), (
        "one evaluation takes 0.4 / 40"
    )
    known = advise(cases()["bent"], 6.0).mean_gain
    assert known is not None
    assert advise(cases()["bent"], 6.0, worth=0.3 * known).kind is AdviceKind.CONTINUE
    assert advise(cases()["bent"], 6.0, worth=3.0 * known).kind is AdviceKind.STOP


@pytest.mark.parametrize(
    ("stop_below", "continue_from", "sentence"),
    [
        (
            0.5,
            0.6,
            "A level of 0.600 or more would speak for continuing, below 0.500 for stopping.",
        ),
        (0.5, None, "A level below 0.500 would speak for stopping."),
        (None, 0.6, "A level of 0.600 or more would speak for continuing."),
        (None, None, "Hardly any one reading would; the slope of the curve will."),
    ],
)
def test_what_would_change_a_wait_is_said_of_the_limits_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
    stop_below: float | None,
    continue_from: float | None,
    sentence: str,
) -> None:
    found = WaitPlan(3, 1.0, stop_below, continue_from)
    monkeypatch.setattr("rollcast.scaling.decisions.advice.best_wait", lambda *_: found)
    asked = advise(cases()["early"], 8.0, worth=advise(cases()["early"], 8.0).mean_gain)
    assert (asked.headline, asked.change) == ("Wait for 3 more evaluations", sentence)


def test_a_single_evaluation_pays_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = WaitPlan(1, 1.0, None, None, is_open=False)
    monkeypatch.setattr("rollcast.scaling.decisions.advice.best_wait", lambda *_: found)
    asked = advise(cases()["early"], 8.0)
    assert asked.headline == "Continue for 1 more evaluation"
    assert asked.reason.endswith("The next evaluation pays for itself, the rest after it hardly.")


@pytest.mark.parametrize(
    ("budget", "worth", "price", "sentence"),
    [
        (-1.0, None, None, "budget: -1 is no compute"),
        (math.nan, None, None, "budget: nan"),
        (6.0, 2.0, None, "worth: 2 is no gain"),
        (6.0, None, math.inf, "price: inf is no price"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    budget: float, worth: float | None, price: float | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        advise(cases()["bent"], budget, worth=worth, price=price)


def test_without_a_worth_a_small_rest_must_bring_as_much_for_its_size() -> None:
    forecast = cases()["bent"]
    assert advise(forecast, 6.0).worth == pytest.approx(0.02)
    assert advise(forecast, 60.0).worth == pytest.approx(0.02)
    assert advise(forecast, 3.3).worth == pytest.approx(0.002)
