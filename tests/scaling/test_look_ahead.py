"""What each choice is worth: against a simulation of the futures, decided one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from rollcast.scaling.decisions.look_ahead import (
    WaitPlan,
    best_wait,
    value_of_the_rest,
    waits_until,
)
from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.combined import EVEN_LEVELS

NUM_OUTER = 3000
NUM_INNER = 400


class Question(NamedTuple):
    """Normal levels after the wait and at the end, in pass rate."""

    after_mean: float
    after_spread: float
    end_mean: float
    end_spread: float
    level: float
    worth: float
    spent: float
    persistence: float


QUESTIONS = [
    Question(0.51, 0.02, 0.53, 0.06, 0.5, 0.03, 0.2, 0.5),
    Question(0.5, 0.03, 0.5, 0.04, 0.5, 0.02, 0.5, 1.0),
    Question(0.52, 0.01, 0.6, 0.1, 0.5, 0.1, 0.1, 0.3),
]


def normal_levels(mean: float, spread: float) -> Array:
    return np.asarray(mean + spread * ndtri(EVEN_LEVELS))


def value_by_simulation(asked: Question) -> float:
    """Of a wait: draw the level after it, draw ends that go with it, decide, and add up what was
    gained and paid.
    """
    rng = np.random.default_rng(0)
    correlation = asked.spent**asked.persistence
    # Mirrored draws halve the noise of the sum.
    half = rng.standard_normal(NUM_OUTER // 2)
    values = []
    for score in np.concatenate([half, -half]).tolist():
        after = asked.after_mean + asked.after_spread * score
        others = rng.standard_normal(NUM_INNER // 2)
        others = np.concatenate([others, -others])
        end = asked.end_mean + asked.end_spread * (
            correlation * score + np.sqrt(1 - correlation**2) * others
        )
        going_on = float(np.mean(np.maximum(end - asked.level, 0.0))) - asked.worth
        stopping = max(after - asked.level, 0.0) - asked.worth * asked.spent
        values.append(max(going_on, stopping))
    return sum(values) / len(values)


@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_wait_is_worth_what_simulated_futures_bring(asked: Question) -> None:
    """Next to it stands a wait for one evaluation, which never pays: its readings are exact, so
    that noise is nil.
    """
    wait = of_two_waits(asked)
    assert wait.evaluations == 3
    assert wait.value == pytest.approx(value_by_simulation(asked), abs=0.001)


def of_two_waits(asked: Question) -> WaitPlan:
    after = normal_levels(asked.after_mean, asked.after_spread)
    return best_wait(
        [1, 3],
        np.stack([np.full(after.size, asked.level), after]),
        normal_levels(asked.end_mean, asked.end_spread),
        np.array([0.999, asked.spent]),
        asked.level,
        asked.worth,
        asked.persistence,
    )


def test_a_lucky_reading_is_not_kept() -> None:
    """If readings after the wait scatter as those of one evaluation ahead do, all of
    that is noise.
    """
    after = normal_levels(0.5, 0.03)
    end = normal_levels(0.4, 0.01)
    noise_alone = best_wait(
        [1, 3], np.stack([after, after]), end, np.array([0.1, 0.2]), 0.5, 0.05, 0.5
    )
    assert noise_alone.value == pytest.approx(-0.05 * 0.1, abs=1e-6), (
        "there is nothing to gain, and it is paid for"
    )
    half = normal_levels(0.5, 0.03 / np.sqrt(2))
    moved = best_wait([1, 3], np.stack([half, after]), end, np.array([0.9, 0.2]), 0.5, 0.05, 0.5)
    # Half of the variance is that of the level, so half of the distance is kept: E max(0, N(0,
    # 0.015)).
    assert moved.value == pytest.approx(0.015 / np.sqrt(2 * np.pi) - 0.05 * 0.2, abs=2e-4)


def test_the_limits_of_a_wait_are_the_levels_at_which_the_better_choice_changes() -> None:
    asked = QUESTIONS[2]
    wait = of_two_waits(asked)
    assert wait.stop_below is not None
    assert wait.continue_from is not None
    assert wait.stop_below < wait.continue_from
    correlation = asked.spent**asked.persistence

    def advantage_of_going_on(level_then: float) -> float:
        """The mean of a normal variable cut at the level, in closed form, minus what stopping then
        keeps.
        """
        score = (level_then - asked.after_mean) / asked.after_spread
        mean = asked.end_mean + asked.end_spread * correlation * score - asked.level
        spread = asked.end_spread * np.sqrt(1 - correlation**2)
        density = np.exp(-0.5 * (mean / spread) ** 2) / np.sqrt(2 * np.pi)
        gain = mean * ndtr(mean / spread) + spread * density
        return float(gain - asked.worth * (1 - asked.spent) - max(level_then - asked.level, 0.0))

    limit = brentq(advantage_of_going_on, 0.5, 0.54)
    assert wait.stop_below - 0.0005 <= limit <= wait.continue_from + 0.0005


def test_of_several_waits_the_one_of_most_value_is_taken() -> None:
    after = np.stack(
        [normal_levels(0.5, 0.01), normal_levels(0.52, 0.05), normal_levels(0.5, 0.02)]
    )
    end = normal_levels(0.55, 0.1)
    spent = np.array([0.1, 0.2, 0.6])
    best = best_wait([1, 2, 5], after, end, spent, 0.5, 0.06, 0.5)
    firsts = [
        best_wait([1, 2, 5][:n], after[:n], end, spent[:n], 0.5, 0.06, 0.5).value for n in (1, 2, 3)
    ]
    assert firsts == sorted(firsts), "one more length to choose from is never worth less"
    assert best.value == firsts[-1]
    assert best.evaluations == 2, "after which the level has spread and most of the budget is left"


def test_the_rest_is_worth_its_gains_and_a_loss_costs_nothing() -> None:
    assert value_of_the_rest(np.array([-0.3, 0.0, 0.1, 0.2])) == pytest.approx(0.075)
    assert value_of_the_rest(np.array([-0.3, -0.1])) == 0.0


def test_a_wait_must_end_before_the_budget_does() -> None:
    assert waits_until(10.0, 10.9, 1.0) == []
    assert waits_until(10.0, 12.5, 1.0) == [1, 2]
    assert max(waits_until(10.0, 1e6, 1.0)) < 1e6
