"""Against what the curve is fitted, and how that maps to device-hours.

While the fleet stays as it is the law is fitted on device-hours, counted from the first step on: engines that start up
are paid for, but nothing is learned from them. When the fleet changes, device-hours per step and per token change
together for no learning reason (longer answers alone change one of them at most): the law is then fitted on trained
tokens, scaled to device-hours at the newest evaluation; its answers are mapped back by the rates that were measured.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

import numpy as np

from rollcast.curves.evaluations import Evaluation
from rollcast.scaling.curve import Array

FLEET_CHANGE = 0.10
"""Relative change of device-hours per step and per token beyond which the fleet is taken to have changed."""
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


def since_first_step(evaluations: tuple[Evaluation, ...]) -> ComputeAxis:
    """Device-hours, those of the start-up taken out."""
    idle, last = _start_up(evaluations), max(evaluations[-1].compute, 1e-12)
    return ComputeAxis(np.array([0.0, idle, last]), np.array([0.0, 0.0, last - idle]), 1.0, "device_hours")


def choose_axis(evaluations: tuple[Evaluation, ...]) -> ComputeAxis:
    """Trained tokens where the fleet changed and every evaluation tells them, else device-hours."""
    compute = np.array([item.compute for item in evaluations])
    plain = since_first_step(evaluations)
    if any(item.trained_tokens is None and item.compute > 0 for item in evaluations):
        return plain
    steps = np.append(0.0, [item.step for item in evaluations])
    tokens = np.append(0.0, [item.trained_tokens or 0.0 for item in evaluations])
    compute = np.append(0.0, compute)
    keep = _rising(compute, steps, tokens)
    compute, steps, tokens = compute[keep], steps[keep], tokens[keep]
    if compute.size < 2 * MIN_INTERVALS + 1:
        return plain
    spent = np.diff(compute)
    if not _fleet_changed(spent / np.diff(steps), spent / np.diff(tokens)):
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


def _start_up(evaluations: tuple[Evaluation, ...]) -> float:
    """Device-hours before the first step: what the first evaluation cost beyond its steps and beyond its tokens.

    0 where it is unknown, or where the first evaluation is a late one: too much would be guessed.
    """
    first, *later = [item for item in evaluations if item.step > 0][: MIN_INTERVALS + 1]
    if len(later) < MIN_INTERVALS:
        return 0.0
    spent = np.diff([first.compute, *(item.compute for item in later)])
    steps = np.diff([first.step, *(item.step for item in later)])
    tokens = np.diff([item.trained_tokens or 0.0 for item in (first, *later)])
    if steps.min() <= 0 or spent.min() <= 0 or first.step > 2 * np.median(steps):
        return 0.0
    learning = first.step * float(np.median(spent / steps))
    if first.trained_tokens and tokens.min() > 0:
        learning = max(learning, first.trained_tokens * float(np.median(spent / tokens)))
    return first.compute - learning if first.compute > (1 + FLEET_CHANGE) * learning else 0.0


def _rising(*quantities: Array) -> list[int]:
    """Indices of the points at which all quantities rise."""
    keep = [0]
    for index in range(1, quantities[0].size):
        if all(values[index] > values[keep[-1]] for values in quantities):
            keep.append(index)
    return keep


def _fleet_changed(per_step: Array, per_token: Array) -> bool:
    """Whether both rates differ before and after some interval, the same way, by more than 10 % and their scatter."""
    rates = [np.log(rate) for rate in (per_step, per_token)]
    splits = np.arange(MIN_INTERVALS, per_step.size - MIN_INTERVALS + 1)
    jumps = np.stack([_running_median(rate[::-1])[-splits - 1] - _running_median(rate)[splits - 1] for rate in rates])
    large = np.log1p(FLEET_CHANGE)
    candidates = (jumps.min(axis=0) > large) | (jumps.max(axis=0) < -large)
    return any(
        all(abs(jump) > 5 * _jump_scatter(rate, split) for jump, rate in zip(pair, rates, strict=True))
        for split, pair in zip(splits[candidates], jumps.T[candidates], strict=True)
    )


def _running_median(values: Array) -> Array:
    """(n,) -> (n,): at each place the median of the values up to there."""
    ordered: list[float] = []
    medians = np.empty(values.size)
    for place, value in enumerate(values.tolist()):
        bisect.insort(ordered, value)
        medians[place] = 0.5 * (ordered[place // 2] + ordered[(place + 1) // 2])
    return medians


def _jump_scatter(logarithm: Array, split: int) -> float:
    """By how much the medians before and after `split` differ by chance."""
    parts = logarithm[:split], logarithm[split:]
    return max(_scatter(part) / math.sqrt(part.size) for part in parts)


def _scatter(values: Array) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
