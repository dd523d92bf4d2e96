"""Curves that no law can have made bar a decision, healthy ones do not; and each verdict says what
it rests on.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior
from testkit.forecast.other_shapes import draw_run

COMPUTE = np.linspace(50.0, 2000.0, 40)
LAW = sigmoid(COMPUTE, 0.2, 0.62, 1.9, 250.0)
DECISIONS = (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)


def verdict_of(pass_rate: Array, seed: int = 0, prior: Prior = DEFAULT_PRIOR) -> Verdict:
    noisy = pass_rate + 0.003 * np.random.default_rng(seed).standard_normal(COMPUTE.size)
    return fit(Curve.from_points(COMPUTE, noisy), FitOptions(prior=prior)).verdict


def wave(height: float, phase: float) -> Array:
    """A curve that swings about the law, more slowly than noise and too fast for any law."""
    return np.asarray(LAW + height * np.sin(5.0 * np.log(COMPUTE / 2000.0) + phase))


@pytest.mark.parametrize(
    ("pass_rate", "prior", "says"),
    [
        (wave(0.05, 1.57), DEFAULT_PRIOR, "its later readings climb out of it"),
        (wave(0.05, 2.4), DEFAULT_PRIOR, "its later readings climb out of it"),
        (wave(0.05, 1.57), LAW_PRIOR, "its later readings climb out of it"),
        (wave(0.05, 0.0), DEFAULT_PRIOR, "a long row of readings is on one side of it"),
        (LAW, replace(LAW_PRIOR, asymptote=(0.52, 0.005)), "its newest readings lie above it"),
    ],
)
def test_readings_that_the_fitted_curve_cannot_have_made_bar_a_decision(
    pass_rate: Array, prior: Prior, says: str
) -> None:
    """The last one: a prior that is sure of an asymptote which the run has passed."""
    verdict = verdict_of(pass_rate, seed=3, prior=prior)
    assert verdict.kind is VerdictKind.NOT_SIGMOID
    assert says in verdict.reason
    assert re.search(r"standard deviations (above|below) it\.$", verdict.reason), (
        "nothing of where gains end"
    )


def test_a_law_and_small_swings_about_it_are_no_misfit() -> None:
    for seed in range(3):
        for height in (0.0, 0.006):
            assert verdict_of(wave(height, 1.57), seed).kind in DECISIONS, (seed, height)


@pytest.mark.parametrize("kind", ["power_tail", "log_creep", "format_jump", "shallow"])
def test_runs_of_other_kinds_are_described_by_the_weighed_shapes(kind: str) -> None:
    runs = [draw_run(kind, seed) for seed in range(6)]
    reasons = [
        fit(Curve.from_points(run.compute, run.pass_rate, unit="steps")).verdict.reason
        for run in runs
    ]
    assert [reason for reason in reasons if "does not describe" in reason] == []


def test_the_evidence_is_that_of_the_readings() -> None:
    """Against the same figures, taken from the forecast's own answers."""
    noisy = LAW + 0.01 * np.random.default_rng(1).standard_normal(COMPUTE.size)
    forecast = fit(Curve.from_points(COMPUTE, noisy), FitOptions(prior=LAW_PRIOR))
    found = re.search(
        r"explains (\d+)% of the variance of (\d+) readings, (\d+) of them past C_mid; the newest "
        r"(\d+) lie ([\d.]+) "
        r"standard deviations (above|below) it; gains end with a probability of (\d+)%\.$",
        forecast.verdict.reason,
    )
    assert found is not None, forecast.verdict.reason
    kept = forecast.excluded
    off = noisy - forecast.pass_rate(COMPUTE, (0.5,))[0]
    explained = 1 - np.mean(off[kept:] ** 2) / np.var(noisy[kept:])
    assert int(found[1]) == pytest.approx(100 * explained, abs=1)
    assert int(found[2]) == COMPUTE.size - kept
    assert int(found[3]) == np.sum(COMPUTE[kept:] > forecast.midpoint((0.5,))[0])
    newest = off[-int(found[4]) :].mean()
    assert float(found[5]) == pytest.approx(abs(newest) / np.std(off[kept:]), abs=0.4)
    assert found[7] == "100"


def test_a_break_and_a_fall_say_how_sure_they_are() -> None:
    jumped = verdict_of(np.where(COMPUTE < 1200, LAW, LAW + 0.12))
    assert jumped.kind is VerdictKind.REGIME_CHANGE
    assert re.search(r"The odds of a break there are (over a million|[\d,]+) to 1\.", jumped.reason)
    fallen = verdict_of(np.where(COMPUTE < 1200, LAW, LAW - 0.2))
    assert fallen.kind is VerdictKind.BROKEN
    found = re.search(r"fell by ([\d.]+) from .* (\d+) standard errors\.", fallen.reason)
    assert found is not None, fallen.reason
    assert int(found[2]) == pytest.approx(float(found[1]) / (0.003 * np.sqrt(2 / 4)), rel=0.5)
