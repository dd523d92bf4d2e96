"""Shapes beside the law: runs of other kinds, drawn by a generator that shares nothing with the
fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior
from testkit.forecast.other_shapes import Drawn, draw_run
from tests.scaling.calibration import shares_held

NUM_RUNS = 6
HELD = ("power_tail", "log_growth", "log_creep", "format_jump", "wandering", "shallow", "decline")
"""Kinds whose future their past tells something of; a second rise is in no window."""


def fitted(run: Drawn, prior: Prior = DEFAULT_PRIOR) -> Forecast:
    return fit(Curve.from_points(run.compute, run.pass_rate, unit="steps"), FitOptions(prior=prior))


@pytest.mark.parametrize("kind", HELD)
def test_intervals_hold_what_comes_of_runs_of_other_kinds(kind: str) -> None:
    """90 % intervals of few runs; test_calibration.py asks more of them."""
    twice, ten_times = shares_held(kind, NUM_RUNS)
    assert twice >= 4 / NUM_RUNS
    assert ten_times >= 4 / NUM_RUNS


def test_the_law_alone_does_not_know_a_creep_that_the_weighed_shapes_allow_for() -> None:
    assert shares_held("log_creep", 8, LAW_PRIOR)[1] <= 0.5


def test_a_tail_is_part_of_what_the_run_heads_for_and_of_the_compute_to_a_pass_rate() -> None:
    """Draw by draw, against the law and its tail written out and searched step by step."""
    run = draw_run("log_growth", 1)
    draws = fitted(run).draws
    at = 3.0
    rise = 1 / (1 + (np.exp(draws.log_midpoint) / at) ** draws.exponent)
    expected = draws.initial + (draws.asymptote - draws.initial) * rise
    expected = np.where(
        draws.tail == 0, expected, expected + draws.tail * np.log(1 + at / np.exp(draws.log_onset))
    )
    assert draws.law([at])[0] == pytest.approx(np.clip(expected, 0, 1), abs=1e-9)
    target = float(np.median(draws.law([1.5])[0]))
    found = draws.compute_to(target)
    for place in np.flatnonzero(draws.tail != 0)[::400]:
        steps = np.geomspace(1e-4, 1e3, 20_000)
        above = np.flatnonzero(draws[np.array([place])].law(steps)[:, 0] >= target)
        if above.size and steps[above[0]] < 50.0:
            assert found[place] == pytest.approx(steps[above[0]], rel=0.02, abs=2e-4)


@pytest.mark.parametrize("kind", ["log_creep", "decline"])
def test_the_odds_that_a_tail_falls_are_the_priors_times_those_of_the_readings(kind: str) -> None:
    """By Bayes: with a prior of 4 to 1 every odds of the readings, told by even ones, is four times
    as large.
    """
    run = draw_run(kind, 5)
    even, falling = (
        fitted(run, replace(DEFAULT_PRIOR, tail_falls=falls)).draws.tail for falls in (0.5, 0.8)
    )
    of_readings = np.sum(even < 0) / np.sum(even > 0)
    assert np.sum(falling < 0) / np.sum(falling > 0) == pytest.approx(4 * of_readings, rel=0.1)
    evidence = 2 * (0.8 * np.mean(even < 0) + 0.2 * np.mean(even > 0)) + np.mean(even == 0)
    assert np.mean(falling == 0) == pytest.approx(np.mean(even == 0) / evidence, rel=0.05)


def test_turns_widen_what_will_be_read_and_leave_the_law_alone() -> None:
    run = draw_run("wandering", 3)
    with_turns, without = (fitted(run, prior) for prior in (DEFAULT_PRIOR, _without_turns()))
    assert with_turns.pass_rate([4.0]).tolist() == without.pass_rate([4.0]).tolist()
    now = run.compute[-1]
    assert with_turns.predictive([now]).tolist() == without.predictive([now]).tolist()
    wide, narrow = (np.ptp(forecast.predictive([4.0])[:, 0]) for forecast in (with_turns, without))
    assert wide > narrow


def _without_turns() -> Prior:
    values = {name: getattr(DEFAULT_PRIOR, name) for name in DEFAULT_PRIOR.__dataclass_fields__}
    return Prior(**{**values, "turn_rate": 0.0})


@pytest.mark.parametrize("height", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_late_jump_is_a_change_of_regime_and_no_tail(seed: int, height: float) -> None:
    compute = np.linspace(60.0, 2000.0, 30)
    law = 0.2 + 0.42 / (1 + (400.0 / compute) ** 1.7)
    noise = 0.006 * np.random.default_rng(seed).standard_normal(30)
    verdict = fit(
        Curve.from_points(compute, np.where(compute < 1250, law, law + height) + noise)
    ).verdict
    assert verdict.kind is VerdictKind.REGIME_CHANGE
