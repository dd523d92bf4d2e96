"""The number of further evaluations to wait for before a decision, and the readings that would decide it.

Raiffa and Schlaifer's preposterior analysis of one number y, the mean of the next n readings. In each trajectory y
scatters around the law in the middle of these n, with the noise of the readings so far; a correlation r of successive
ones multiplies their variance by (1 + r) / (1 - r). Weighing the trajectories by y gives the chance after y is known. n
is the least number after which that chance will be outside the two bounds with a probability of `CLEAR_PROBABILITY`. It
is rather too large than too small, because the slope of the readings contains more than their mean.
"""

from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.settings import (
    CLEAR_PROBABILITY,
    MAX_NOISE_READINGS,
    MAX_WAIT_TRAJECTORIES,
    MIN_RELATIVE_DENSITY,
    NUM_READING_NODES,
    WAIT_EVALUATIONS,
)
from rollcast.scaling.law.curve import Array


@dataclass(frozen=True)
class WaitPlan:
    """How long to wait, and for what.

    Attributes:
        evaluations: to wait for.
        is_clear: the chance will then be outside the bounds with a probability of `CLEAR_PROBABILITY`.
        stop_below, continue_from: limits of the readings' mean that lead to these decisions; None if no mean does.
    """

    evaluations: int
    is_clear: bool
    stop_below: float | None
    continue_from: float | None


def plan_wait(forecast: Forecast, end: float, worth: float, bounds: tuple[float, float]) -> WaitPlan:
    """The shortest wait after which the decision is clear, or the longest one before `end`.

    `end` on the fitted axis; `bounds`: stop below the first chance, continue from the second on.
    """
    now = float(forecast.curve.compute[-1])
    spacing = evaluation_spacing(forecast)
    waits = np.array([number for number in WAIT_EVALUATIONS if now + number * spacing < end] or WAIT_EVALUATIONS[:1])
    middles = now + spacing * (waits + 1) / 2
    trajectories = forecast.draws.law([now, end, *middles])
    trajectories = trajectories[:, :: max(1, trajectories.shape[1] // MAX_WAIT_TRAJECTORIES)]
    pays = trajectories[1] - trajectories[0] >= worth
    spread = _spread(forecast)
    # The shortest wait may already reach past the end; it is then returned, but not as a clear one.
    fits = now + float(waits[0]) * spacing < end
    for number, means in zip(waits.tolist(), trajectories[2:], strict=True):
        plan = _look(number, means, pays, spread / float(np.sqrt(number)), bounds)
        if plan.is_clear:
            break
    return plan if fits else replace(plan, is_clear=False)


def evaluation_spacing(forecast: Forecast) -> float:
    """Recent compute from one evaluation to the next, on the fitted axis."""
    compute = forecast.curve.compute
    recent = compute[-max(2, compute.size // 3) - 1 :]
    spacing = float(np.median(np.diff(recent))) if recent.size > 1 else float(compute[-1])
    return max(spacing, 1e-9 * float(compute[-1]))


def _look(number: int, means: Array, pays: Array, spread: float, bounds: tuple[float, float]) -> WaitPlan:
    """`means` (d,) of the next readings by trajectory, `pays` (d,) whether it gains enough."""
    low = float(means.min())
    high = float(means.max())
    # At least a fraction of the nodes' distance, so that no trajectory falls between two nodes.
    width = max(spread, (high - low) / 40, 1e-6)
    reading = np.linspace(low - 3 * width, high + 3 * width, NUM_READING_NODES)
    weight = np.exp(-0.5 * ((reading[:, None] - means) / width) ** 2)
    likely = weight.sum(axis=1)
    chance = weight @ pays / np.maximum(likely, 1e-300)
    is_usual = likely > MIN_RELATIVE_DENSITY * likely.max()
    stops = is_usual & (chance < bounds[0])
    goes = is_usual & (chance >= bounds[1])
    is_clear = bool(likely[stops | goes].sum() >= CLEAR_PROBABILITY * likely.sum())
    stop_below = float(reading[stops].max()) if np.any(stops) else None
    continue_from = float(reading[goes].min()) if np.any(goes) else None
    if stop_below is not None and continue_from is not None and stop_below >= continue_from:
        # The chance does not rise with the reading alone, so no single limit separates the two decisions.
        stop_below = None
        continue_from = None
    return WaitPlan(number, is_clear, stop_below, continue_from)


def _spread(forecast: Forecast) -> float:
    """Standard deviation of one reading about the law, as if readings were independent: wandering counts as noise."""
    curve = forecast.curve
    newest = slice(-min(max(8, len(curve) // 2), MAX_NOISE_READINGS), None)
    residual = curve.pass_rate[newest] - forecast.draws.law(curve.compute[newest]).mean(axis=1)
    deviation = float(np.std(residual))
    if residual.size < 4 or deviation < 1e-6:
        return max(deviation, 1e-3)
    correlation = float(np.clip(np.mean(residual[1:] * residual[:-1]) / deviation**2, 0.0, 0.9))
    return deviation * float(np.sqrt((1 + correlation) / (1 - correlation)))
