"""Stop, continue or wait: against the trajectories themselves, and against what must follow from more or less."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rollcast.scaling.decisions.advice import AdviceKind, advise
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import CLEAR_PROBABILITY, WAIT_EVALUATIONS
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.decisions.waiting import plan_wait
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR

ORDER = [AdviceKind.CONTINUE, AdviceKind.WAIT, AdviceKind.STOP]
"""As the gain that is asked for grows."""


def fitted(compute: Array, pass_rate: Array) -> Forecast:
    """By the law alone: what follows from more or less is then known; a tail may fall."""
    return fit(Curve.from_points(compute, pass_rate), FitOptions(prior=LAW_PRIOR))


def law(stop: float, *, noise: float = 0.006, points: int = 40, seed: int = 0) -> Forecast:
    compute: NDArray[np.float64] = np.linspace(stop / points, stop, points)
    pass_rate = SigmoidParameters(0.2, 0.7, 1.7, 1.0).pass_rate(compute)
    scatter = noise * np.random.default_rng(seed).standard_normal(points)
    return fitted(compute, np.clip(pass_rate + scatter, 0, 1))


def collapsed() -> Forecast:
    compute: NDArray[np.float64] = np.arange(1.0, 41.0, dtype=np.float64)
    pass_rate = np.where(compute < 25, SigmoidParameters(0.2, 0.7, 1.7, 8.0).pass_rate(compute), 0.3)
    return fitted(compute, pass_rate + 0.004 * np.random.default_rng(0).standard_normal(40))


def flat() -> Forecast:
    compute: NDArray[np.float64] = np.arange(1.0, 26.0, dtype=np.float64)
    return fitted(compute, 0.5 + 0.004 * np.random.default_rng(0).standard_normal(25))


@cache
def cases() -> dict[str, Forecast]:
    return {
        "saturated": law(12.0),
        "bent": law(3.0),
        "noisy": law(6.0, noise=0.02),
        "early": law(0.4),
        "few": law(0.5, points=3),
        "flat": flat(),
        "collapsed": collapsed(),
    }


NAMES = st.sampled_from(["saturated", "bent", "noisy", "early", "few", "flat", "collapsed"])
BUDGETS = st.floats(0.5, 20.0)
"""Times the compute so far."""
WORTHS = st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 0.05))


@settings(max_examples=150, deadline=None)
@given(NAMES, BUDGETS, WORTHS, WORTHS)
def test_asking_for_more_only_leads_from_continue_over_wait_to_stop(
    name: str, times: float, one: float, other: float
) -> None:
    forecast = cases()[name]
    budget = times * float(forecast.curve.compute[-1])
    less, more = (advise(forecast, budget, worth=worth) for worth in sorted((one, other)))
    assert ORDER.index(less.kind) <= ORDER.index(more.kind)
    if less.chance is not None and more.chance is not None:
        assert less.chance >= more.chance
    assert less.rest == more.rest


@settings(max_examples=60, deadline=None)
@given(NAMES, BUDGETS, WORTHS, st.floats(0.0, 1e4))
def test_a_price_only_scales(name: str, times: float, worth: float, price: float) -> None:
    forecast = cases()[name]
    budget = times * float(forecast.curve.compute[-1])
    free, paid = advise(forecast, budget, worth=worth), advise(forecast, budget, worth=worth, price=price)
    assert (free.kind, free.chance, free.evaluations, free.reason, free.change) == (
        paid.kind,
        paid.chance,
        paid.evaluations,
        paid.reason,
        paid.change,
    )
    for without, stretch in ((free.soon, paid.soon), (free.rest, paid.rest), (free.wait, paid.wait)):
        if without is not None and stretch is not None:
            assert without.money is None
            assert stretch.money == pytest.approx(price * stretch.compute)
            assert (without.gain, without.compute) == (stretch.gain, stretch.compute)


def slow_gains(forecast: Forecast, start: float, stop: float) -> list[float]:
    """One trajectory after the other."""
    before, after = forecast.draws.law([start]).tolist()[0], forecast.draws.law([stop]).tolist()[0]
    gains = []
    for place in range(len(before)):
        gains.append(after[place] - before[place])
    return gains


@pytest.mark.parametrize("name", ["saturated", "bent", "noisy", "early", "flat"])
def test_the_chance_is_the_share_of_the_draws_and_the_gains_are_their_quantiles(name: str) -> None:
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    gains = sorted(slow_gains(forecast, now, 2.5 * now))
    for worth in (gains[0] - 1e-6 if gains[0] > 1e-6 else 0.0, gains[1000], gains[3000] + 1e-9):
        advice = advise(forecast, 2.5 * now, worth=max(worth, 0.0))
        counted = sum(gain >= max(worth, 0.0) for gain in gains) / len(gains)
        assert advice.chance == pytest.approx(counted, abs=2 / len(gains))
        assert advice.rest.gain == pytest.approx(
            [gains[round(q * (len(gains) - 1))] for q in (0.05, 0.5, 0.95)], abs=1e-3
        )


@settings(max_examples=100, deadline=None)
@given(NAMES, BUDGETS, WORTHS)
def test_a_verdict_that_bars_decisions_never_stops_a_run_that_may_gain(name: str, times: float, worth: float) -> None:
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    advice = advise(forecast, times * now, worth=worth)
    if times <= 1:
        assert advice.kind is AdviceKind.STOP
    elif forecast.verdict.kind not in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED):
        gains = forecast.draws.law([now, times * now])
        assert advice.kind is not AdviceKind.STOP or float((gains[1] - gains[0]).max()) < 0.001


@settings(max_examples=60, deadline=None)
@given(NAMES, BUDGETS)
def test_stretches_lie_within_the_budget_and_inside_one_another(name: str, times: float) -> None:
    forecast = cases()[name]
    now = float(forecast.curve.compute[-1])
    advice = advise(forecast, times * now, price=3.0)
    assert advice.soon.compute <= advice.rest.compute + 1e-9
    assert advice.rest.until == pytest.approx(max(times, 1.0) * now)
    assert advice.soon.compute == pytest.approx(min(0.1 * times * now, max(times - 1, 0) * now))
    assert (advice.wait is None) == (advice.evaluations == 0) == (advice.kind is not AdviceKind.WAIT)
    if advice.wait is not None:
        assert advice.wait.compute <= advice.rest.compute + 1e-9
    if advice.soon.gain is not None and advice.rest.gain is not None:
        assert all(soon <= rest + 1e-9 for soon, rest in zip(advice.soon.gain, advice.rest.gain, strict=True))


def test_each_kind_of_curve_gets_the_advice_that_it_calls_for() -> None:
    forecasts = cases()
    assert forecasts["saturated"].verdict.kind is VerdictKind.SATURATED
    assert advise(forecasts["saturated"], 40.0).headline == "Stop"
    assert advise(forecasts["bent"], 6.0).headline == "Continue"
    early = advise(forecasts["early"], 6.0)
    assert early.headline == "Continue"
    assert "not known yet" in early.reason
    fell = advise(forecasts["collapsed"], 60.0)
    assert (fell.headline, fell.chance, fell.rest.gain) == ("Wait for 5 more evaluations", None, None)
    assert "No law describes" in fell.reason
    quiet = advise(forecasts["flat"], 30.0, worth=0.02)
    assert quiet.kind is AdviceKind.WAIT
    assert "no run is stopped" in quiet.reason
    spent = advise(forecasts["bent"], 3.0)
    assert (spent.headline, spent.reason, spent.chance) == ("Stop", "The budget is spent.", None)
    assumed = advise(forecasts["bent"])
    assert (assumed.is_assumed, assumed.budget) == (True, pytest.approx(6.0))
    assert "As much compute again" in assumed.reason


def test_without_a_worth_a_small_rest_must_bring_as_much_for_its_size() -> None:
    forecast = cases()["bent"]
    assert advise(forecast, 6.0).worth == pytest.approx(0.02)
    assert advise(forecast, 60.0).worth == pytest.approx(0.02)
    assert advise(forecast, 3.3).worth == pytest.approx(0.002)


@pytest.mark.parametrize("asked_for", [0.7, 0.85, 0.9])
def test_the_wait_is_as_long_as_simulated_futures_need(asked_for: float) -> None:
    """Futures drawn from the trajectories, each weighed anew by Bayes' rule on all of its readings."""
    forecast = cases()["noisy"]
    gains = np.diff(forecast.draws.law([6.0, 30.0]), axis=0)[0]
    worth = float(np.quantile(gains, asked_for))
    plan = plan_wait(forecast, 30.0, worth, (0.05, 0.5))
    assert plan.is_clear
    assert plan.stop_below is not None
    assert plan.continue_from is not None
    assert plan.stop_below < plan.continue_from
    needed = next(
        n for n in WAIT_EVALUATIONS if share_clear(forecast, n, gains >= worth, noise=0.02) >= CLEAR_PROBABILITY
    )
    # All of the readings tell more than their mean: the wait may be longer than needed, by two of its lengths.
    assert 0 <= WAIT_EVALUATIONS.index(plan.evaluations) - WAIT_EVALUATIONS.index(needed) + 1 <= 3


def share_clear(forecast: Forecast, number: int, pays: NDArray[np.bool_], noise: float) -> float:
    rng = np.random.default_rng(0)
    spacing = 6.0 / 40
    laws = forecast.draws.law(6.0 + spacing * np.arange(1, number + 1))
    clear = []
    for truth in rng.integers(0, laws.shape[1], 400):
        readings = laws[:, truth] + noise * rng.standard_normal(number)
        weight = np.exp(-0.5 * np.sum((readings[:, None] - laws) ** 2, axis=0) / noise**2)
        chance = float(weight @ pays / weight.sum())
        clear.append(not 0.05 <= chance < 0.5)
    return float(np.mean(clear))


def test_more_noise_to_come_makes_the_wait_longer() -> None:
    """Of one posterior, beside which the readings lie twice and eight times as far from the law."""
    forecast = law(6.0, noise=0.002)
    curve = forecast.curve
    middle = forecast.draws.law(curve.compute).mean(axis=1)
    worth = float(np.quantile(np.diff(forecast.draws.law([6.0, 300.0]), axis=0)[0], 0.8))
    waits = []
    for times in (1.0, 2.0, 8.0):
        noisier = replace(forecast, curve=replace(curve, pass_rate=middle + times * (curve.pass_rate - middle)))
        waits.append(plan_wait(noisier, 300.0, worth, (0.05, 0.5)).evaluations)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]


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
