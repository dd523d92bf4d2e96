"""Which runs are said to have learned nothing: against simulated runs whose level is known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.no_learning import judge_no_learning, learning_statistics
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Array, Curve, sigmoid

STEPS: Array = np.arange(1.0, 41.0, dtype=np.float64)


def curve_of(rates: Array) -> Curve:
    return Curve.from_points(
        [float(step) for step in range(1, rates.size + 1)], np.clip(rates, 0.0, 1.0)
    )


def share_recognised(level: Array, num_samples: int) -> float:
    """Of 200 runs whose readings are means of `num_samples` answers at these levels (n,)."""
    rng = np.random.default_rng(0)
    runs = [curve_of(rng.binomial(num_samples, level) / num_samples) for _ in range(200)]
    return float(np.mean([judge_no_learning(run) is not None for run in runs]))


@pytest.mark.parametrize(
    ("level", "num_samples"), [(0.3, 4000), (0.001, 500), (0.004, 256), (0.5, 20_000)]
)
def test_runs_without_learning_are_recognised_at_any_level(level: float, num_samples: int) -> None:
    assert share_recognised(np.full(40, level), num_samples) > 0.9


@pytest.mark.parametrize(
    "level",
    [
        np.linspace(0.001, 0.008, 40),
        0.2 + 0.5 / (1 + (8 / STEPS) ** 2),
        np.where(STEPS < 3, 0.2, 0.5),
        np.where(STEPS < 32, 0.01, 0.01 + 0.01 * (STEPS - 31)),
    ],
    ids=["tiny rates that rise eightfold", "the law", "a rise at once", "a late take-off"],
)
def test_runs_that_learn_are_not(level: Array) -> None:
    assert share_recognised(level, 2000) < 0.02


def test_readings_of_eight_answers_hide_a_rise_unless_all_of_them_agree() -> None:
    """Such readings are multiples of 1/8; about a level of a half even 40 of them could hide a rise
    of 0.03.
    """
    assert share_recognised(np.full(40, 0.5), 8) == 0
    assert share_recognised(np.full(40, 0.0005), 8) > 0.9


def test_a_run_is_given_ten_evaluations_first() -> None:
    assert judge_no_learning(curve_of(np.zeros(9))) is None
    assert judge_no_learning(curve_of(np.zeros(10))) is not None
    early = fit(curve_of(np.full(9, 0.3))).verdict
    assert early.kind is VerdictKind.TOO_EARLY
    assert early.reason.startswith(
        "The level has not moved yet. After 10 evaluations that counts as no learning;"
    )
    assert fit(curve_of(np.full(12, 0.3))).verdict.kind is VerdictKind.NO_LEARNING
    assert fit(curve_of(np.zeros(9))).verdict.kind is VerdictKind.TOO_EARLY
    assert fit(curve_of(np.zeros(12))).verdict.kind is VerdictKind.NO_LEARNING


def test_a_measured_start_below_the_rest_has_been_left() -> None:
    rates = np.full(20, 0.4) + 0.002 * np.random.default_rng(0).standard_normal(20)
    started = Curve.from_points(STEPS[:20], rates, initial=0.1)
    assert judge_no_learning(curve_of(rates)) is not None
    assert judge_no_learning(started) is None


def test_a_run_at_the_ceiling_has_nothing_to_learn() -> None:
    assert judge_no_learning(curve_of(np.ones(30))) is None
    assert fit(curve_of(np.ones(9))).verdict.kind is VerdictKind.SATURATED


def test_the_part_that_the_user_leaves_out_counts_as_a_part_of_the_run() -> None:
    """Only the flat top is fitted, but the run did learn."""
    from rollcast.scaling.posterior.options import FitOptions

    compute = np.linspace(1.0, 60.0, 60)
    rates = sigmoid(compute, 0.1, 0.5, 3.0, 4.0) + 0.003 * np.random.default_rng(0).standard_normal(
        60
    )
    verdict = fit(Curve.from_points(compute, rates), FitOptions(exclude_before=30.0)).verdict
    assert verdict.kind is not VerdictKind.NO_LEARNING


@pytest.mark.parametrize("seed", range(3))
def test_the_statistics_are_those_of_textbooks(seed: int) -> None:
    rates = np.round(0.3 + 0.1 * np.random.default_rng(seed).standard_normal(31), 1)
    found = learning_statistics(curve_of(rates))
    assert found.trend_errors == pytest.approx(
        scipy.stats.spearmanr(np.arange(31), rates).statistic * np.sqrt(30)
    )
    assert found.rise == pytest.approx(rates[-10:].mean() - rates[:10].mean())
    noise = np.sqrt(sum((after - before) ** 2 for before, after in pairwise(rates)) / 60)
    assert found.noise == pytest.approx(noise)
    assert found.rise_errors == pytest.approx(found.rise / (noise * np.sqrt(0.2)))


def test_a_healthy_run_whose_first_phase_falls_is_not_broken() -> None:
    """It comes down from its start for a tenth of its compute, and climbs from then on."""
    compute = np.linspace(0.5, 30.0, 60)
    dip = 0.08 * np.exp(-compute / 0.8)
    for seed in range(5):
        noise = 0.005 * np.random.default_rng(seed).standard_normal(60)
        rates = sigmoid(compute, 0.2, 0.7, 1.6, 6.0) + dip + noise
        verdict = fit(Curve.from_points(compute, rates, initial=0.3)).verdict
        assert verdict.kind is not VerdictKind.BROKEN, verdict.reason
