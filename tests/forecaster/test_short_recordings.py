"""Verdicts on recordings of a dozen points or two, as a live run shows them for most of its life."""

from __future__ import annotations

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve
from testkit.forecaster.recorded_run import record

BROKEN = {VerdictKind.BROKEN, VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE}


def verdict(count: int, asymptote: float, seed: int, jump: float = 0.0) -> VerdictKind:
    """On the first `count` points of a recording; a `jump` lifts the second half of them."""
    points = record(asymptote=asymptote, seed=seed)[:count]
    return fit(
        Curve.from_points(
            [p.compute for p in points],
            [min(p.pass_rate + jump * (place >= count // 2), 1.0) for place, p in enumerate(points)],
            [p.standard_error for p in points],
        )
    ).verdict.kind


def test_a_healthy_run_is_accused_of_nothing() -> None:
    accused = [
        (count, asymptote, seed)
        for count in (12, 16, 20)
        for asymptote in (0.6, 0.85)
        for seed in range(20)
        if verdict(count, asymptote, seed) in BROKEN
    ]
    assert accused == []
    assert verdict(16, 0.6, 2) not in BROKEN


def test_a_run_that_jumped_is_told() -> None:
    told = [verdict(18, 0.75, seed, jump=0.1) is VerdictKind.REGIME_CHANGE for seed in range(20)]
    assert sum(told) >= 18
