"""Whether the fitted curve could have made the readings: posterior predictive checks that bar
decisions.

From each trajectory a set of independent readings is simulated. If hardly one set in a thousand
strays as far as the real readings do, and these stray far enough to matter, no curve of the family
describes the run. Three checks:

    newest     the mean of the newest readings is above the curve, and so above the asymptote that
               it approaches
    rising     the later half of the readings climbs out of the curve
    one side   a row of readings is on one side of the curve

The checks are strict on purpose: on real curves milder ones could not separate runs that went
another way from others. The simulated readings have no drift: with the drift that the fit allows
they would stray as far as any run does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rollcast.scaling.decisions.settings import MIN_BREAK, MIN_MISFIT, MIN_NEWEST, NEWEST_DIVISOR
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.draws import Draws


def judge_misfit(draws: Draws, law: Array, observations: Observations) -> Verdict | None:
    """The verdict that no curve of the family describes the readings, or None.

    `law` (n, d): of the draws at the points; of a thousand draws or more.
    """
    # (n, d) 1, but 0 within a first phase and at a measured start, which the law need not pass
    # through.
    phase_ends = np.array([departure.at for departure in draws.departures])[draws.departure]
    compute = np.exp(observations.log_compute)[:, None]
    on_the_law = np.asarray((compute >= phase_ends) & (compute > 0.0), dtype=float)
    residual = on_the_law * (observations.pass_rate[:, None] - law)  # (n, d)
    typical = residual.mean(axis=1, keepdims=True)  # (n, 1) from the mean trajectory
    checks = [check for check in CHECKS if float(check.measure(typical)[0]) >= check.min_size]
    if not checks:
        return None
    # Independent errors, each with the white noise of its draw.
    normal = np.random.default_rng(0).standard_normal(
        (observations.log_compute.size, draws.initial.size)
    )
    simulated = on_the_law * (draws.noise / np.sqrt(observations.precision)[:, None] * normal)
    for check in checks:
        as_far = check.measure(simulated) >= check.measure(residual)  # (d,)
        # 1e-3: share of repetitions that stray as far, below which the curve does not describe the
        # run. Milder checks could not separate runs that went another way from others (lab notes,
        # "Misfits that bar a decision").
        if float(np.mean(as_far)) < 1e-3:
            return Verdict(
                VerdictKind.NOT_SIGMOID,
                f"The fitted curve does not describe the run: {check.says}, and of {as_far.size:,} "
                "repetitions with independent readings at most one strays as far.",
            )
    return None


def _newest(residual: Array) -> Array:
    """(n, d) -> (d,) the mean of the newest readings."""
    count = max(MIN_NEWEST, residual.shape[0] // NEWEST_DIVISOR)
    return np.asarray(residual[-count:].mean(axis=0))


def _rising(residual: Array) -> Array:
    """(n, d) -> (d,) climb of the straight line through the later half, from its first point to its
    last.
    """
    later_half = residual[residual.shape[0] // 2 :]
    position = np.arange(later_half.shape[0]) - (later_half.shape[0] - 1) / 2.0
    return np.asarray(
        position @ later_half * (later_half.shape[0] - 1) / max(float(position @ position), 1.0)
    )


def _one_side(residual: Array) -> Array:
    """(n, d) -> (d,) the largest sum of neighbours of one sign, divided by the number of points."""
    area = np.zeros(residual.shape[1])
    largest = area.copy()
    for point_residual in residual:
        # A change of sign begins a new row.
        area = np.where(area * point_residual > 0, area, 0.0) + point_residual
        largest = np.maximum(largest, np.abs(area))
    return np.asarray(largest / residual.shape[0])


class Check(NamedTuple):
    """One way to stray from the curve.

    Attributes:
        measure: residuals (n, d) -> how far each set strays (d,), in pass rate.
        min_size: size from which it matters.
        says: the reason of the verdict.
    """

    measure: Callable[[Array], Array]
    min_size: float
    says: str


CHECKS = (
    Check(_newest, MIN_MISFIT, "its newest readings lie above it"),
    Check(_rising, MIN_BREAK, "its later readings climb out of it"),
    Check(_one_side, MIN_MISFIT, "a long row of readings is on one side of it"),
)
