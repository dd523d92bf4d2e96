"""Verdicts on recordings of a dozen points or two, as a live run shows them for most
of its life.
"""

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
            [
                min(p.pass_rate + jump * (place >= count // 2), 1.0)
                for place, p in enumerate(points)
            ],
            [p.standard_error for p in points],
        )
    ).verdict.kind


def accused(num_runs: int) -> list[tuple[int, float, int]]:
    """Points, asymptote and seed of healthy runs whose verdict is a break."""
    return [
        (count, asymptote, seed)
        for count in (12, 16, 20)
        for asymptote in (0.6, 0.85)
        for seed in range(num_runs)
        if verdict(count, asymptote, seed) in BROKEN
    ]


def num_jumps_recognised(num_runs: int) -> int:
    return sum(
        verdict(18, 0.75, seed, jump=0.1) is VerdictKind.REGIME_CHANGE for seed in range(num_runs)
    )
