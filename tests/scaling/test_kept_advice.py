"""Advice over time: the last one stays unless another is clearly better; a wait ends in time and
may change it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from rollcast.scaling.decisions.advice import (
    Advice,
    AdviceKind,
    EarlierAdvice,
    advise,
    evaluation_spacing,
)
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.look_ahead import best_wait, waits_until
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve, sigmoid
from rollcast.scaling.outlook.combined import EVEN_LEVELS

STOP, CONTINUE, WAIT = AdviceKind.STOP, AdviceKind.CONTINUE, AdviceKind.WAIT


@cache
def bent() -> Forecast:
    compute = np.linspace(0.1, 3.0, 30)
    noise = 0.01 * np.random.default_rng(0).standard_normal(30)
    return fit(Curve.from_points(compute, sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + noise))


def near_the_limit(factor: float, last: EarlierAdvice | None = None) -> Advice:
    """With a rest in which there is no other evaluation to wait for; `factor`: worth over the mean
    gain.
    """
    budget = 3.0 + 0.9 * evaluation_spacing(bent())
    limit = advise(bent(), budget).mean_gain
    assert limit is not None
    return advise(bent(), budget, worth=factor * limit, last=last)


@pytest.mark.parametrize(
    ("factor", "last", "kind"),
    [
        (0.95, None, CONTINUE),
        (0.95, STOP, STOP),
        (1.05, None, STOP),
        (1.05, CONTINUE, CONTINUE),
        (0.5, STOP, CONTINUE),
        (2.0, CONTINUE, STOP),
        (0.95, CONTINUE, CONTINUE),
        (1.05, STOP, STOP),
        (0.95, WAIT, CONTINUE),
        (1.05, WAIT, STOP),
    ],
)
def test_the_last_advice_stays_unless_another_is_clearly_better(
    factor: float, last: AdviceKind | None, kind: AdviceKind
) -> None:
    assert near_the_limit(factor, None if last is None else EarlierAdvice(last, 3)).kind is kind


def test_a_wait_is_counted_down_and_then_over() -> None:
    assert EarlierAdvice.after("wait", 5, 2) == EarlierAdvice(WAIT, 3)
    assert EarlierAdvice.after("wait", 5, 5) is None
    assert EarlierAdvice.after("continue", 0, 4) == EarlierAdvice(CONTINUE, 0)


def wait_of(promised: int, clear_difference: float) -> int:
    """Of waits for 2, 4 and 5 evaluations, whose values are a little apart: the chosen one."""
    score = np.linspace(-2.3, 2.3, EVEN_LEVELS.size)
    after = np.stack([0.5 + spread * score for spread in (0.001, 0.02, 0.03, 0.034)])
    end = 0.52 + 0.05 * score
    waits = [1, 2, 4, 5]
    ahead = np.array([0.05, 0.1, 0.2, 0.25])
    return best_wait(
        waits, after, end, ahead, 0.5, 0.03, 0.5, promised, clear_difference
    ).evaluations


def test_the_end_of_a_wait_stays_unless_another_is_clearly_better() -> None:
    best = wait_of(0, 0.0)
    other = next(number for number in (2, 4, 5) if number != best)
    assert wait_of(other, 0.0) == best
    assert wait_of(other, 1.0) == other


def test_a_wait_ends_before_the_last_evaluation() -> None:
    assert waits_until(0.0, 100.0, 1.0, 13) == [1, 2, 3, 5, 8]
    assert waits_until(0.0, 100.0, 1.0, 12, promised=11) == [1, 2, 3, 5, 8, 11]
    assert waits_until(0.0, 100.0, 1.0, 1) == []
    assert waits_until(0.0, 4.5, 1.0, 13) == [1, 2, 3]


def test_a_wait_after_which_every_level_means_to_stop_is_known() -> None:
    score = np.linspace(-2.3, 2.3, EVEN_LEVELS.size)
    after = np.stack([0.5 + 0.001 * score, 0.6 + 0.01 * score])
    plan = best_wait([1, 10], after, 0.62 + 0.01 * score, np.array([0.02, 0.2]), 0.5, 0.1, 0.5)
    assert (plan.evaluations, plan.continue_from, plan.is_open) == (10, None, False)


def test_without_a_worth_the_rest_must_bring_something_to_the_end() -> None:
    assert advise(bent(), 3.03).worth == pytest.approx(0.002)
    assert advise(bent(), 3.03, worth=0.0001).worth == pytest.approx(0.0001)


def test_a_run_that_its_own_rule_ended_is_told_to_stop_with_that_reason() -> None:
    ended = advise(bent(), 30.0, end_reason="saturated on 3 refits in a row")
    assert (ended.kind, ended.headline) == (STOP, "Stop")
    assert ended.reason == "`stop_when` ended the run: saturated on 3 refits in a row."
    assert advise(bent(), 30.0).kind is not STOP


@pytest.mark.parametrize("seed", range(4))
def test_a_single_evaluation_takes_no_number_away(seed: int) -> None:
    """One reading far below the law; a second one like it means broken."""
    compute = np.linspace(1.0, 30.0, 30)
    noise = 0.004 * np.random.default_rng(seed).standard_normal(30)
    rates = sigmoid(compute, 0.2, 0.7, 1.7, 6.0) + noise
    rates[27:] -= 0.3
    kinds = []
    for count in range(26, 31):
        verdict = fit(Curve.from_points(compute[:count], rates[:count])).verdict
        kinds.append(verdict.kind)
        if count == 28:
            assert verdict.is_described
    first = kinds.index(VerdictKind.BROKEN)
    assert first >= 3, "not by the first low reading"
    assert set(kinds[first:]) == {VerdictKind.BROKEN}
    assert all(kind not in (VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID) for kind in kinds[:first])
