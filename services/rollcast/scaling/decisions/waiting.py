"""For how many more evaluations it pays to wait before a decision, and what they would say.

The mean of the next n readings is one number y. In each trajectory y lies around the law in the middle of these n, with
the noise that the readings so far had about the law. Readings that wander together tell less: their variance counts
(1 + r) / (1 - r) times for a correlation r of successive ones. Weighing the trajectories by y gives the chance as it
will be once y is known; all trajectories together say how likely each y is. n is the least number after which the
chance will lie outside of the two bounds with a probability of `CLEAR`.

This is Raiffa and Schlaifer's preposterior analysis for the one statistic y. The slope of the readings tells more than
their mean alone, so n is rather too large than too small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Array

CLEAR = 0.5
"""Probability with which the advice after the wait is stop or continue; a surer one takes several times as long."""
WAITS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 80)
"""Evaluations that a wait may last."""
MOST_DRAWS = 512
"""Trajectories that the length of a wait is found from; all of them would take ten times as long."""
MOST_READINGS = 16
"""Newest readings that tell the noise."""
PLACES = 41
"""Means at which the chance is asked."""
UNUSUAL = 1e-3
"""Relative density below which a mean is none that one will see."""


@dataclass(frozen=True)
class WaitPlan:
    """Attributes:
    evaluations: to wait for.
    is_clear: the chance will then lie outside of the bounds with a probability of `CLEAR`.
    stop_below, continue_from: means of the readings that lead there; None where none does.
    """

    evaluations: int
    is_clear: bool
    stop_below: float | None
    continue_from: float | None


def plan_wait(forecast: Forecast, end: float, worth: float, bounds: tuple[float, float]) -> WaitPlan:
    """The shortest wait after which the decision is clear, or the longest one before `end`.

    `end` on the fitted axis; `bounds`: stop below the first chance, continue from the second on.
    """
    now, spacing = float(forecast.curve.compute[-1]), evaluation_spacing(forecast)
    waits = np.array([number for number in WAITS if now + number * spacing < end] or WAITS[:1])
    trajectories = forecast.draws.law([now, end, *(now + spacing * (waits + 1) / 2)])
    trajectories = trajectories[:, :: max(1, trajectories.shape[1] // MOST_DRAWS)]
    pays, spread = trajectories[1] - trajectories[0] >= worth, _spread(forecast)
    fits = now + float(waits[0]) * spacing < end
    for number, means in zip(waits.tolist(), trajectories[2:], strict=True):
        plan = _look(number, means, pays, spread / float(np.sqrt(number)), bounds)
        if plan.is_clear:
            break
    return plan if fits else replace(plan, is_clear=False)


def evaluation_spacing(forecast: Forecast) -> float:
    """Compute from one evaluation to the next on the fitted axis, as it was lately."""
    compute = forecast.curve.compute
    recent = compute[-max(2, compute.size // 3) - 1 :]
    spacing = float(np.median(np.diff(recent))) if recent.size > 1 else float(compute[-1])
    return max(spacing, 1e-9 * float(compute[-1]))


def _look(number: int, means: Array, pays: Array, spread: float, bounds: tuple[float, float]) -> WaitPlan:
    """`means` (d,) of the next readings by trajectory, `pays` (d,) whether it gains enough."""
    low, high = float(means.min()), float(means.max())
    width = max(spread, (high - low) / 40, 1e-6)
    reading = np.linspace(low - 3 * width, high + 3 * width, PLACES)
    weight = np.exp(-0.5 * ((reading[:, None] - means) / width) ** 2)
    likely = weight.sum(axis=1)
    chance = weight @ pays / np.maximum(likely, 1e-300)
    usual = likely > UNUSUAL * likely.max()
    stops, goes = usual & (chance < bounds[0]), usual & (chance >= bounds[1])
    is_clear = bool(likely[stops | goes].sum() >= CLEAR * likely.sum())
    stop_below = float(reading[stops].max()) if np.any(stops) else None
    continue_from = float(reading[goes].min()) if np.any(goes) else None
    if stop_below is not None and continue_from is not None and stop_below >= continue_from:
        # The chance does not rise with the reading alone: no one limit parts the two.
        stop_below = continue_from = None
    return WaitPlan(number, is_clear, stop_below, continue_from)


def _spread(forecast: Forecast) -> float:
    """Standard deviation of one reading about the law, as if readings were independent: wandering counts as noise."""
    curve = forecast.curve
    newest = slice(-min(max(8, len(curve) // 2), MOST_READINGS), None)
    residual = curve.pass_rate[newest] - forecast.draws.law(curve.compute[newest]).mean(axis=1)
    deviation = float(np.std(residual))
    if residual.size < 4 or deviation < 1e-6:
        return max(deviation, 1e-3)
    correlation = float(np.clip(np.mean(residual[1:] * residual[:-1]) / deviation**2, 0.0, 0.9))
    return deviation * float(np.sqrt((1 + correlation) / (1 - correlation)))
