"""Against what the curve is fitted, and how that maps to device-hours.

While the fleet stays as it is, trained tokens and device-hours are proportional and the law is fitted on device-hours.
When the fleet changes, device-hours per token change for no learning reason: the law is then fitted on trained tokens,
scaled to device-hours at the newest evaluation, and its answers are mapped back by the rates that were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollcast.forecaster.evaluations import Evaluation
from rollcast.scaling.curve import Array

FLEET_CHANGE = 0.10
"""Relative change of device-hours per token beyond which the fleet is taken to have changed."""
MIN_INTERVALS = 3
"""Intervals between evaluations needed on each side of a change."""


@dataclass(frozen=True, eq=False)
class ComputeAxis:
    """A rising map between device-hours and the fitted axis: linear between evaluations and beyond the last.

    Attributes:
        device_hours: (n,) ascending from 0.
        fitted: (n,) the same places on the fitted axis.
        rate: fitted units per device-hour beyond the newest evaluation.
        quantity: what the law is fitted on.
    """

    device_hours: Array
    fitted: Array
    rate: float
    quantity: str

    def to_fitted(self, device_hours: Array) -> Array:
        """(m,) -> (m,)."""
        beyond = np.maximum(device_hours - self.device_hours[-1], 0.0)
        return np.asarray(np.interp(device_hours, self.device_hours, self.fitted) + beyond * self.rate)

    def to_device_hours(self, fitted: Array) -> Array:
        """(m,) -> (m,); inf stays inf."""
        beyond = np.maximum(fitted - self.fitted[-1], 0.0)
        return np.asarray(np.interp(fitted, self.fitted, self.device_hours) + beyond / self.rate)


def choose_axis(evaluations: tuple[Evaluation, ...]) -> ComputeAxis:
    """Trained tokens where the fleet changed and every evaluation tells them, else device-hours."""
    compute = np.array([item.compute for item in evaluations])
    plain = ComputeAxis(
        np.array([0.0, max(compute[-1], 1e-12)]), np.array([0.0, max(compute[-1], 1e-12)]), 1.0, "device_hours"
    )
    if any(item.trained_tokens is None and item.compute > 0 for item in evaluations):
        return plain
    tokens = np.array([item.trained_tokens or 0.0 for item in evaluations])
    compute, tokens = _rising(np.append(0.0, compute), np.append(0.0, tokens))
    if compute.size < 2 * MIN_INTERVALS + 1 or not _fleet_changed(np.diff(compute) / np.diff(tokens)):
        return plain
    scale = compute[-1] / tokens[-1]
    recent = max(1, MIN_INTERVALS)
    rate = scale * (tokens[-1] - tokens[-1 - recent]) / (compute[-1] - compute[-1 - recent])
    return ComputeAxis(compute, tokens * scale, float(rate), "trained_tokens")


def compute_per_step(evaluations: tuple[Evaluation, ...]) -> float | None:
    """Device-hours of one optimizer step, measured over the last third of the evaluations; None where unknown."""
    last = evaluations[-1]
    window = max(MIN_INTERVALS, len(evaluations) // 3)
    first = evaluations[max(0, len(evaluations) - 1 - window)]
    steps, compute = last.step - first.step, last.compute - first.compute
    if steps <= 0:
        steps, compute = last.step, last.compute
    return compute / steps if steps > 0 and compute > 0 else None


def _rising(compute: Array, tokens: Array) -> tuple[Array, Array]:
    """The points at which both quantities rise."""
    keep = [0]
    for index in range(1, compute.size):
        if compute[index] > compute[keep[-1]] and tokens[index] > tokens[keep[-1]]:
            keep.append(index)
    return compute[keep], tokens[keep]


def _fleet_changed(rate: Array) -> bool:
    """Whether device-hours per token differ before and after some interval, by more than 10 % and their scatter."""
    logarithm = np.log(rate)
    for split in range(MIN_INTERVALS, rate.size - MIN_INTERVALS + 1):
        before, after = logarithm[:split], logarithm[split:]
        jump = abs(float(np.median(after) - np.median(before)))
        scatter = max(_scatter(before) / np.sqrt(before.size), _scatter(after) / np.sqrt(after.size))
        if jump > np.log1p(FLEET_CHANGE) and jump > 5 * scatter:
            return True
    return False


def _scatter(values: Array) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
