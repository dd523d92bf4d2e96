"""Worth of the rest of a budget, and whether to wait for more evaluations first.

Three choices are compared in pass rate. `worth` is the gain that would pay for the whole rest; a
part of the rest costs that part of it. Whoever trains on keeps the checkpoint of now if the run
loses:

    stop         0
    continue     E[max(0, gain)] - worth
    wait for n   the better of the two after n evaluations, averaged over what these may read, minus
                 their cost

Waiting is Raiffa and Schlaifer's preposterior analysis. A run that reads above its median after n
evaluations tends to end above its median. In normal scores the two correlate with (u_n /
u_end)^persistence, learned from curves of other groups (`posterior/stack.py`). u is the compute
ahead.

What a run keeps if it stops after the wait is its true level, not a lucky reading. Readings of one
evaluation ahead scatter by noise alone, so the share of the variance that is more than theirs is
that of the level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from rollcast.scaling.decisions.settings import WAIT_EVALUATIONS
from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.combined import EVEN_LEVELS

SCORES: Array = ndtri(EVEN_LEVELS)
"""Standard normal values of equally likely levels."""


@dataclass(frozen=True)
class WaitPlan:
    """A wait for some evaluations.

    Attributes:
        value: of this choice, in pass rate.
        stop_below, continue_from: limits of the level then that lead to these decisions; None if no
            level does.
        is_open: whether either decision may follow. If only one can, this is no wait but a shorter
            run.
    """

    evaluations: int
    value: float
    stop_below: float | None
    continue_from: float | None
    is_open: bool = True


def value_of_the_rest(gains: Array) -> float:
    """E[max(0, gain)] of equally likely gains (u,): the rest pays for itself if it costs less."""
    return float(np.maximum(gains, 0.0).mean())


def best_wait(
    waits: Sequence[int],
    levels: Array,
    end: Array,
    ahead: Array,
    level: float,
    worth: float,
    persistence: float,
    promised: int = 0,
    clear_difference: float = 0.0,
) -> WaitPlan:
    """The wait of most value.

    Args:
        waits: (w,) numbers of evaluations, ascending; all end before the budget does.
        levels: (w, u) equally likely levels after each wait, ascending.
        end: (u,) equally likely levels at the end, ascending.
        ahead: (w,) share of the rest that each wait spends.
        level: the level now.
        worth: the gain that would pay for the whole rest.
        persistence: as in `Stack`.
        promised: evaluations that the last advice still waits for; 0 for none. That wait is kept
            unless the best one is worth more by the `clear_difference`.
    """
    noise = float(np.var(levels[0]))
    plans = [
        _wait(number, readings, noise, end, float(share), level, worth, persistence)
        for number, readings, share in zip(waits, levels, ahead, strict=True)
    ]
    best = max(plans, key=lambda wait: wait.value)
    for wait in plans:
        if wait.evaluations == promised and wait.value >= best.value - clear_difference:
            return wait
    return best


def _true_levels(readings: Array, noise: float) -> Array:
    """The level that each reading (u,) after a wait lets expect; `noise`: variance of the readings
    about it.
    """
    middle = float(np.median(readings))
    # 1e-12: floor of the variance of readings, in squared pass rate: it is divided by.
    share = max(1.0 - noise / max(float(np.var(readings)), 1e-12), 0.0)
    return middle + share * (readings - middle)


def _wait(
    number: int,
    readings: Array,
    noise: float,
    end: Array,
    spent: float,
    level: float,
    worth: float,
    persistence: float,
) -> WaitPlan:
    """`readings` (u,) equally likely readings after the wait, in the order of `SCORES`; `noise`:
    variance of a reading about its level; `spent`: share of the rest.
    """
    correlation = spent**persistence
    # (u, u) normal scores of the end, for each score after the wait.
    scores = correlation * SCORES[:, None] + np.sqrt(1.0 - correlation**2) * SCORES
    ends = np.interp(ndtr(scores), EVEN_LEVELS, end)
    going_on = np.maximum(ends - level, 0.0).mean(axis=1) - worth * (1.0 - spent)
    stopping = np.maximum(_true_levels(readings, noise) - level, 0.0)
    value = float(np.maximum(going_on, stopping).mean()) - worth * spent
    goes = going_on > stopping
    continue_from = float(readings[goes].min()) if goes.any() else None
    stop_below = float(readings[~goes].max()) if not goes.all() else None
    if stop_below is not None and continue_from is not None and stop_below >= continue_from:
        # The choice does not follow from the level alone, so no single limit separates the two.
        return WaitPlan(number, value, None, None)
    return WaitPlan(
        number, value, stop_below, continue_from, is_open=bool(goes.any() and not goes.all())
    )


def waits_until(
    newest_compute: float,
    end: float,
    spacing: float,
    evaluations_left: int | None = None,
    promised: int = 0,
) -> list[int]:
    """Numbers of evaluations that can be waited for before the budget ends, the `promised` one
    among them.

    `evaluations_left`: until the end, of which the last one comes too late for a decision; None =
    unknown.
    """
    return [
        number
        for number in sorted({*WAIT_EVALUATIONS, promised} - {0})
        if newest_compute + number * spacing < end
        and (evaluations_left is None or number < evaluations_left)
    ]
