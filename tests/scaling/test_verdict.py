from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior import fit
from rollcast.scaling.verdict import Verdict, VerdictKind

COMPUTE = np.linspace(0.1, 6.0, 60)
LAW = sigmoid(COMPUTE, 0.2, 0.7, 1.7, 1.0)


def verdict_of(pass_rate: Array, compute: Array = COMPUTE, noise: float = 0.01) -> Verdict:
    noisy = pass_rate + noise * np.random.default_rng(0).standard_normal(pass_rate.size)
    return fit(Curve.from_points(compute, noisy.clip(0, 1))).verdict


@pytest.mark.parametrize(
    ("pass_rate", "kind"),
    [
        (LAW, VerdictKind.FORECASTABLE),
        (np.where(COMPUTE < 4, LAW, 0.3), VerdictKind.NOT_SIGMOID),
        (LAW - 0.06 * np.maximum(COMPUTE - 3, 0), VerdictKind.NOT_SIGMOID),
        (np.where(COMPUTE < 3, LAW, LAW + 0.15), VerdictKind.REGIME_CHANGE),
    ],
)
def test_shape_of_the_whole_curve(pass_rate: Array, kind: VerdictKind) -> None:
    verdict = verdict_of(pass_rate)
    assert verdict.kind is kind
    assert verdict.reason.endswith((".", ")."))


def test_a_long_flat_top_is_saturated_and_a_short_start_too_early() -> None:
    compute = np.linspace(0.5, 60, 80)
    assert verdict_of(sigmoid(compute, 0.2, 0.7, 1.9, 1.0), compute, 0.005).kind is VerdictKind.SATURATED
    short = np.linspace(0.02, 0.4, 20)
    assert verdict_of(sigmoid(short, 0.2, 0.7, 1.7, 1.0), short, 0.005).kind is VerdictKind.TOO_EARLY
    assert verdict_of(LAW[:3], COMPUTE[:3]).kind is VerdictKind.TOO_EARLY


def test_a_rising_share_of_truncated_answers_is_a_regime_change_before_the_pass_rate_shows_it() -> None:
    truncation = np.where(COMPUTE < 5, 0.01, 0.25)
    noisy = LAW + 0.01 * np.random.default_rng(0).standard_normal(LAW.size)
    curve = Curve.from_points(COMPUTE, noisy, truncation_ratio=truncation)
    assert fit(curve).verdict.kind is VerdictKind.REGIME_CHANGE
    assert "25%" in fit(curve).verdict.reason
    assert fit(curve.window(stop=4.5)).verdict.kind is VerdictKind.FORECASTABLE


def test_good_runs_are_rarely_accused_of_a_break() -> None:
    kinds = [
        fit(Curve.from_points(COMPUTE, LAW + 0.01 * np.random.default_rng(seed).standard_normal(LAW.size))).verdict.kind
        for seed in range(60)
    ]
    assert sum(kind in (VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE) for kind in kinds) <= 1
