"""Against what the curve is fitted, and how that maps to device-hours.

While the fleet stays as it is the law is fitted on device-hours without those of start-ups: engines that start are paid
for, but nothing is learned from them. This goes for the first start and for every one after a restart.

When the number of devices changes, so do the device-hours of a step, for no learning reason. The law is then fitted on
trained tokens, scaled to device-hours at the newest evaluation; its answers are mapped back by the rates that were
measured. The trainer tells the number of devices with each evaluation, so the choice changes at most once in a
surviving history: what changed stays in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rollcast.curves.evaluations import CurvePoint
from rollcast.scaling.curve import Array

FLEET_CHANGE = 0.10
"""Relative change of the number of devices beyond which the fleet is taken to have changed."""
START_UP = 0.10
"""Where nobody measured the start-up, a first interval counts as one beyond this relative excess over its likes."""
MIN_INTERVALS = 3
"""Intervals between evaluations from which a usual rate is told."""


@dataclass(frozen=True, eq=False)
class ComputeAxis:
    """A rising map between device-hours and the fitted axis: linear between evaluations and beyond the last.

    Attributes:
        device_hours: (n,) ascending from 0.
        fitted: (n,) the same places on the fitted axis.
        rate: fitted units per device-hour beyond the newest evaluation.
        quantity: what the law is fitted on.
        start_up: device-hours that were left out of it.
    """

    device_hours: Array
    fitted: Array
    rate: float
    quantity: str
    start_up: float

    def to_fitted(self, device_hours: Array) -> Array:
        """(m,) -> (m,)."""
        beyond = np.maximum(device_hours - self.device_hours[-1], 0.0)
        return np.asarray(np.interp(device_hours, self.device_hours, self.fitted) + beyond * self.rate)

    def to_device_hours(self, fitted: Array) -> Array:
        """(m,) -> (m,); inf stays inf. Where nothing was learned for a while, the first place that leads there."""
        beyond = np.maximum(fitted - self.fitted[-1], 0.0)
        # Backwards: of several places with one value np.interp takes the last.
        return np.asarray(np.interp(-fitted, -self.fitted[::-1], self.device_hours[::-1]) + beyond / self.rate)


def without_start_up(evaluations: tuple[CurvePoint, ...]) -> ComputeAxis:
    """Device-hours, those of the start-ups taken out."""
    compute, start_up = _compute_and_start_up(evaluations)
    return _axis(compute, start_up, compute - start_up, 1.0, "device_hours")


def choose_axis(evaluations: tuple[CurvePoint, ...]) -> ComputeAxis:
    """Trained tokens where the fleet changed and every evaluation tells them, else device-hours."""
    if not _fleet_changed(evaluations) or any(item.trained_tokens is None for item in evaluations if item.step > 0):
        return without_start_up(evaluations)
    compute, start_up = _compute_and_start_up(evaluations)
    tokens = np.append(0.0, [item.trained_tokens or 0.0 for item in evaluations])
    keep = _rising(compute - start_up, tokens)
    compute, start_up, tokens = compute[keep], start_up[keep], tokens[keep]
    if compute.size < 2:
        return without_start_up(evaluations)
    scale = compute[-1] / tokens[-1]
    before = max(0, compute.size - 1 - MIN_INTERVALS)
    learning = (compute - start_up)[-1] - (compute - start_up)[before]
    rate = scale * (tokens[-1] - tokens[before]) / learning
    return _axis(compute, start_up, tokens * scale, float(rate), "trained_tokens")


def _axis(compute: Array, start_up: Array, fitted: Array, rate: float, quantity: str) -> ComputeAxis:
    """Of each interval first comes the start-up that lies in it, where nothing is learned, then the rest."""
    places = np.append(0.0, np.column_stack((compute[:-1] + np.diff(start_up), compute[1:])))
    return ComputeAxis(
        places, np.append(0.0, np.column_stack((fitted[:-1], fitted[1:]))), rate, quantity, float(start_up[-1])
    )


def compute_per_step(evaluations: tuple[CurvePoint, ...]) -> float | None:
    """Device-hours of one optimizer step, measured over the last third of the evaluations; None where unknown.

    Without start-ups, whether they lie at the beginning or after a restart.
    """
    compute, start_up = _compute_and_start_up(evaluations)
    learning = (compute - start_up)[1:]
    window = max(MIN_INTERVALS, len(evaluations) // 3)
    first = max(0, len(evaluations) - 1 - window)
    steps, spent = evaluations[-1].step - evaluations[first].step, learning[-1] - learning[first]
    if steps <= 0:
        steps, spent = evaluations[-1].step, learning[-1]
    return float(spent / steps) if steps > 0 and spent > 0 else None


def _compute_and_start_up(evaluations: tuple[CurvePoint, ...]) -> tuple[Array, Array]:
    """(n + 1,) each: device-hours from 0 on, and those of them that were spent on starting up; neither ever falls."""
    compute = np.append(0.0, [item.compute for item in evaluations])
    if any(item.start_up is not None for item in evaluations):
        start_up = np.append(0.0, [item.start_up or 0.0 for item in evaluations])  # of what one does not tell, the last
    else:
        start_up = np.append(0.0, np.cumsum(_inferred_start_ups(evaluations)))
    # Nothing can be learned backwards, whatever a source says.
    learning = np.maximum.accumulate(compute - np.maximum.accumulate(start_up))
    return compute, compute - learning


def _inferred_start_ups(evaluations: tuple[CurvePoint, ...]) -> Array:
    """(n,) what each interval before an evaluation cost beyond its steps and its tokens, where an incarnation began.

    0 where it is not known: by an evaluation at the start, without a usual rate, or because the first one came late.
    """
    excess = np.zeros(len(evaluations))
    trained = [place for place, item in enumerate(evaluations) if item.step > 0]
    for number, place in enumerate(trained):
        item = evaluations[place]
        before = evaluations[trained[number - 1]] if number else None
        if before is not None and before.incarnation == item.incarnation:
            continue
        likes = _likes([evaluations[index] for index in trained], number)
        steps = item.step - (before.step if before else 0)
        if len(likes) < MIN_INTERVALS or not 0 < steps <= 2 * np.median([like.steps for like in likes]):
            continue
        learning = steps * float(np.median([like.spent / like.steps for like in likes]))
        tokens = (item.trained_tokens or 0.0) - ((before.trained_tokens or 0.0) if before else 0.0)
        if tokens > 0 and all(like.tokens > 0 for like in likes):
            learning = max(learning, tokens * float(np.median([like.spent / like.tokens for like in likes])))
        spent = item.compute - (before.compute if before else 0.0)
        if spent > (1 + START_UP) * learning:
            excess[place] = spent - learning
    return excess


@dataclass(frozen=True)
class _Interval:
    """Between two evaluations of one incarnation."""

    steps: int
    spent: float
    tokens: float


def _likes(trained: list[CurvePoint], number: int) -> list[_Interval]:
    """The three intervals after evaluation `number`, of its incarnation; where they are too few, the three before it.

    The nearest ones, so that what comes later changes nothing of what was said.
    """
    inside = [
        (place, _Interval(item.step - before.step, item.compute - before.compute, _tokens_between(before, item)))
        for place, (before, item) in enumerate(pairwise(trained), start=1)
        if before.incarnation == item.incarnation and item.step > before.step and item.compute > before.compute
    ]
    incarnation = trained[number].incarnation
    after = [like for place, like in inside if place > number and trained[place].incarnation == incarnation]
    if len(after) >= MIN_INTERVALS:
        return after[:MIN_INTERVALS]
    return [like for place, like in inside if place < number][-MIN_INTERVALS:]


def _tokens_between(before: CurvePoint, item: CurvePoint) -> float:
    return (item.trained_tokens or 0.0) - (before.trained_tokens or 0.0)


def _fleet_changed(evaluations: tuple[CurvePoint, ...]) -> bool:
    """Between evaluations after the first step; unknown numbers of devices tell nothing."""
    devices = [item.devices for item in evaluations if item.step > 0 and item.devices]
    return bool(devices) and max(devices) > (1 + FLEET_CHANGE) * min(devices)


def _rising(*quantities: Array) -> list[int]:
    """Indices of the points at which all quantities rise."""
    keep = [0]
    for index in range(1, quantities[0].size):
        if all(values[index] > values[keep[-1]] for values in quantities):
            keep.append(index)
    return keep
