"""Whether the fitted curve could have made the readings: posterior predictive checks that bar decisions.

Each trajectory makes a set of readings again, as independent ones. Where hardly one in a thousand of these sets strays
from its trajectory as far as the readings do, and they stray far enough to matter, no curve of the family describes the
run. Three ways of straying are looked at:

    newest     the mean of the newest readings lies above the curve, and so above the asymptote that it heads for
    rising     the later half of the readings climbs out of the curve
    one side   a row of readings lies on one side of the curve

The checks are strict on purpose. On real curves milder ones told runs that went another way from no others. Nor does
the drift that the fit allows for take part in the sets: with it they stray as far as any run does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rollcast.scaling.decisions.verdict import LEAST_BREAK, Verdict, VerdictKind
from rollcast.scaling.law.curve import MARGIN, Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.draws import Draws

RARER_THAN = 1e-3
"""Share of the repetitions that stray as far."""
NEWEST = 5
"""The newest points are so small a part of all of them, three at least."""


def judge_misfit(draws: Draws, law: Array, observations: Observations) -> Verdict | None:
    """The verdict that no curve of the family describes the readings, or None.

    `law` (n, d): of the draws at the points; of a thousand draws or more.
    """
    on_the_law = _on_the_law(draws, observations)
    found = on_the_law * (observations.pass_rate[:, None] - law)
    typical = found.mean(axis=1, keepdims=True)
    asked = [check for check in CHECKS if float(check.measure(typical)[0]) >= check.least]
    again = on_the_law * _repeated(draws, observations) if asked else found
    for check in asked:
        if float(np.mean(check.measure(again) >= check.measure(found))) < RARER_THAN:
            return Verdict(
                VerdictKind.NOT_SIGMOID,
                f"The fitted curve does not describe the run: {check.says}, and of {again.shape[1]:,} repetitions with "
                "independent readings at most one strays as far.",
            )
    return None


def _on_the_law(draws: Draws, observations: Observations) -> Array:
    """(n, d) 1, but 0 within a first phase and at a measured start, which the law need not pass through."""
    ends = np.array([departure.at for departure in draws.departures])[draws.departure]
    compute = np.exp(observations.log_compute)[:, None]
    return np.asarray((compute >= ends) & (compute > 0.0), dtype=float)


def _repeated(draws: Draws, observations: Observations) -> Array:
    """(n, d) independent errors, each with the white noise of its draw."""
    normal = np.random.default_rng(0).standard_normal((observations.log_compute.size, draws.initial.size))
    return np.asarray(draws.noise / np.sqrt(observations.precision)[:, None] * normal)


def _newest(residual: Array) -> Array:
    """(n, d) -> (d,) their mean."""
    return np.asarray(residual[-max(3, residual.shape[0] // NEWEST) :].mean(axis=0))


def _rising(residual: Array) -> Array:
    """(n, d) -> (d,) by how much the later half climbs, along a straight line."""
    later = residual[residual.shape[0] // 2 :]
    position = np.arange(later.shape[0]) - (later.shape[0] - 1) / 2.0
    return np.asarray(position @ later * (later.shape[0] - 1) / max(float(position @ position), 1.0))


def _one_side(residual: Array) -> Array:
    """(n, d) -> (d,) the largest sum of a row of one sign, shared by all points."""
    area = np.zeros(residual.shape[1])
    largest = area.copy()
    for each in residual:
        area = np.where(area * each > 0, area, 0.0) + each
        largest = np.maximum(largest, np.abs(area))
    return np.asarray(largest / residual.shape[0])


class Check(NamedTuple):
    """A way of straying, the least size of it that matters, in pass rate, and its words."""

    measure: Callable[[Array], Array]
    least: float
    says: str


CHECKS = (
    Check(_newest, 0.5 * MARGIN, "its newest readings lie above it"),
    Check(_rising, LEAST_BREAK, "its later readings climb out of it"),
    Check(_one_side, 0.5 * MARGIN, "a long row of readings lies on one side of it"),
)
