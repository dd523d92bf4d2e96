"""The axis that the law is fitted on, its map to device-hours, and the curve on it.

While the fleet does not change, the law is fitted on device-hours without those of start-ups:
engines that start are paid for, but nothing is learned from them. This holds for the first start
and for every one after a restart.

When the number of devices changes, so do the device-hours of a step, although nothing changes in
what is learned. The law is then fitted on trained tokens, scaled to device-hours at the newest
evaluation, and its answers are mapped back by the measured rates. Each evaluation records the
number of devices, so the choice changes at most once in a surviving history.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rollcast.curves.evaluations import CurvePoint, Evaluations, RunHistory
from rollcast.scaling.law.curve import Array, Curve

MIN_INTERVALS = 3
"""Least number of intervals between evaluations that give a usual rate."""


@dataclass(frozen=True, eq=False)
class ComputeAxis:
    """A rising map between device-hours and the fitted axis: linear between evaluations and beyond
    the last.

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
        return np.asarray(
            np.interp(device_hours, self.device_hours, self.fitted) + beyond * self.rate
        )

    def to_device_hours(self, fitted: Array) -> Array:
        """(m,) -> (m,); inf stays inf.

        Of several device-hours with this value, the first: nothing was learned.
        """
        beyond = np.maximum(fitted - self.fitted[-1], 0.0)
        # Both arrays are reversed because np.interp returns the last of several equal places.
        return np.asarray(
            np.interp(-fitted, -self.fitted[::-1], self.device_hours[::-1]) + beyond / self.rate
        )


def without_start_up(evaluations: Sequence[CurvePoint]) -> ComputeAxis:
    """The axis of device-hours without those of start-ups."""
    compute, start_up = _compute_and_start_up(evaluations)
    return _axis(compute, start_up, compute - start_up, 1.0, "device_hours")


def choose_axis(evaluations: Sequence[CurvePoint]) -> ComputeAxis:
    """The axis of trained tokens if the fleet changed and every evaluation has them, else that of
    device-hours.
    """
    trained_tokens = column(evaluations, "trained_tokens")
    is_trained = column(evaluations, "step") > 0
    devices = np.nan_to_num(column(evaluations, "devices")[is_trained])
    devices = devices[devices > 0]  # evaluations without that number are ignored
    # Relative change of the number of devices beyond which the fleet is taken to have changed
    is_changed = devices.size > 0 and devices.max() > 1.1 * devices.min()
    if not is_changed or np.any(np.isnan(trained_tokens[is_trained])):
        return without_start_up(evaluations)
    compute, start_up = _compute_and_start_up(evaluations)
    tokens = np.append(0.0, np.nan_to_num(trained_tokens))
    keep = _rising(compute - start_up, tokens)
    compute, start_up, tokens = (values[keep] for values in (compute, start_up, tokens))
    if compute.size < 2:
        return without_start_up(evaluations)
    scale = compute[-1] / tokens[-1]
    window_start = max(0, compute.size - 1 - MIN_INTERVALS)
    learning = (compute - start_up)[-1] - (compute - start_up)[window_start]
    rate = scale * (tokens[-1] - tokens[window_start]) / learning
    return _axis(compute, start_up, tokens * scale, float(rate), "trained_tokens")


def _axis(
    compute: Array, start_up: Array, fitted: Array, rate: float, quantity: str
) -> ComputeAxis:
    """Each interval begins with its start-up, in which nothing is learned; the rest follows."""
    if start_up[-1] == 0:
        return ComputeAxis(compute, fitted, rate, quantity, 0.0)
    places = np.append(0.0, np.column_stack((compute[:-1] + np.diff(start_up), compute[1:])))
    fitted_places = np.append(0.0, np.column_stack((fitted[:-1], fitted[1:])))
    return ComputeAxis(places, fitted_places, rate, quantity, float(start_up[-1]))


def compute_per_step(evaluations: Sequence[CurvePoint]) -> float | None:
    """Device-hours of one optimizer step, measured over the last third of the evaluations; None if
    unknown.

    Start-ups are left out, at the beginning and after a restart.
    """
    compute, start_up = _compute_and_start_up(evaluations)
    learning = (compute - start_up)[1:]
    window = max(MIN_INTERVALS, len(evaluations) // 3)
    first = max(0, len(evaluations) - 1 - window)
    steps = evaluations[-1].step - evaluations[first].step
    spent = learning[-1] - learning[first]
    if steps <= 0:
        steps = evaluations[-1].step
        spent = learning[-1]
    return float(spent / steps) if steps > 0 and spent > 0 else None


def _compute_and_start_up(evaluations: Sequence[CurvePoint]) -> tuple[Array, Array]:
    """(n + 1,) each: device-hours from 0 on, and those of them that were spent on starting up;
    neither ever falls.
    """
    compute = np.append(0.0, column(evaluations, "compute"))
    recorded_start_up = column(evaluations, "start_up")
    if not np.all(np.isnan(recorded_start_up)):
        # An unknown one counts as no more than the one before.
        start_up = np.append(0.0, np.nan_to_num(recorded_start_up))
    else:
        start_up = np.append(0.0, np.cumsum(_inferred_start_ups(evaluations)))
    # The device-hours of learning never fall, whatever a source says.
    learning = np.maximum.accumulate(compute - np.maximum.accumulate(start_up))
    return compute, compute - learning


def _inferred_start_ups(evaluations: Sequence[CurvePoint]) -> Array:
    """(n,) device-hours of each incarnation's first interval beyond those of its steps and tokens.

    0 if it is not known: an evaluation was made at the start, there is no usual rate, or the first
    one was made late.
    """
    excess = np.zeros(len(evaluations))
    step = column(evaluations, "step")
    trained = np.flatnonzero(step > 0)
    if trained.size == 0:
        return excess
    incarnation = column(evaluations, "incarnation")[trained]
    is_first = np.append(True, np.diff(incarnation) != 0)
    # (m,) each: from the evaluation before, or from the run's start, to each evaluation after the
    # first step.
    steps = np.diff(step[trained], prepend=0.0)
    spent = np.diff(column(evaluations, "compute")[trained], prepend=0.0)
    tokens = np.diff(np.nan_to_num(column(evaluations, "trained_tokens")[trained]), prepend=0.0)
    is_usual = ~is_first & (steps > 0) & (spent > 0)
    for number in np.flatnonzero(is_first):
        # The nearest intervals are used, so that later evaluations do not change an earlier answer.
        likes = np.flatnonzero(is_usual & (incarnation == incarnation[number]))
        likes = likes[likes > number][:MIN_INTERVALS]
        if likes.size < MIN_INTERVALS:
            likes = np.flatnonzero(is_usual[:number])[-MIN_INTERVALS:]
        if likes.size < MIN_INTERVALS or not 0 < steps[number] <= 2 * np.median(steps[likes]):
            continue
        learning = steps[number] * np.median(spent[likes] / steps[likes])
        if tokens[number] > 0 and np.all(tokens[likes] > 0):
            learning = max(learning, tokens[number] * np.median(spent[likes] / tokens[likes]))
        # Relative excess over similar intervals beyond which the first interval of an incarnation
        # holds a start-up, if the start-up was not measured
        if spent[number] > 1.1 * learning:
            excess[trained[number]] = spent[number] - learning
    return excess


def _rising(*quantities: Array) -> list[int]:
    """Indices of the points at which all quantities rise."""
    keep = [0]
    for index in range(1, quantities[0].size):
        if all(values[index] > values[keep[-1]] for values in quantities):
            keep.append(index)
    return keep


def make_curve(
    history: RunHistory, choose: Callable[[Sequence[CurvePoint]], ComputeAxis] = choose_axis
) -> tuple[ComputeAxis, Curve]:
    """The curve of a run, in which step 0 is compute 0, and the axis that leads back from it to
    device-hours.

    `choose`: with `without_start_up` the axis is that of device-hours even if the fleet changed:
    runs that are compared share an axis. Raises ValueError: no evaluation after the first step, or
    one that cannot be.
    """
    evaluations = history.evaluations
    if column(evaluations, "step").size == 0:
        raise ValueError(
            f"curve {history.name!r}: no finite point at compute > 0; give at least one evaluation."
        )
    axis = choose(evaluations)
    curve = Curve.from_points(
        np.where(
            column(evaluations, "step") == 0, 0.0, axis.to_fitted(column(evaluations, "compute"))
        ),
        column(evaluations, "pass_rate"),
        column(evaluations, "standard_error"),
        name=history.name,
        truncation_ratio=known_truncation(column(evaluations, "truncation_ratio")),
        unit=history.origin.unit,
    )
    return axis, replace(curve, dropped=curve.dropped + history.num_dropped)


def column(evaluations: Sequence[CurvePoint], name: str) -> Array:
    """(n,) one quantity of every evaluation, nan if it is unknown."""
    if isinstance(evaluations, Evaluations):
        return evaluations.columns[name].astype(float)
    # None becomes nan.
    return np.array([getattr(item, name) for item in evaluations], dtype=float)


def known_truncation(ratios: Array) -> Array | None:
    """(n,) in order of compute. Unknown ratios (nan) are interpolated between their neighbors: they
    change no verdict.

    None if none is known.
    """
    known_indices = np.flatnonzero(~np.isnan(ratios))
    if known_indices.size == 0:
        return None
    return np.asarray(np.interp(np.arange(ratios.size), known_indices, ratios[known_indices]))
