"""A sweep as its policy sees it: arms, their runs, and their readings so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rollcast.scaling.law.curve import Array, Curve

NUM_BINS = 20
"""Readings of one run within a twentieth of the target count as their mean, so that a decision over
hundreds of readings takes milliseconds."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of an arm: one seed."""

    arm: str
    """Several runs may share it."""
    spent: float
    """Compute spent over the target, 0 to 1."""
    readings: Sequence[tuple[float, float, float | None]]
    """Compute, pass rate, standard error or None."""

    @classmethod
    def from_curve(cls, arm: str, curve: Curve | None, target: float) -> "SweepRun":
        """A run with the readings of a curve; None before the first."""
        if curve is None:
            return cls(arm, 0.0, ())
        errors = curve.standard_error
        columns = (
            curve.compute.tolist(),
            curve.pass_rate.tolist(),
            [None] * len(curve) if errors is None else errors.tolist(),
        )
        readings = list(zip(*columns, strict=True))
        if curve.initial is not None:
            readings.insert(0, (0.0, curve.initial, curve.initial_standard_error))
        return cls(arm, min(1.0, readings[-1][0] / target), readings)


@dataclass(frozen=True, slots=True)
class SweepState:
    """All runs, and what may still be spent."""

    runs: Sequence[SweepRun]
    target: float
    """The compute at which arms are compared, in the unit of the readings."""
    budget: float
    """Compute that is left, in whole runs to the target."""

    @property
    def arms(self) -> list[str]:
        """Names of the arms, in the order of their first runs."""
        return list(dict.fromkeys(run.arm for run in self.runs))


class BinnedReadings(NamedTuple):
    """Readings of all runs: one for each run and bin that has any."""

    run: np.ndarray
    """(n,) indices into `SweepState.runs`."""
    share: Array
    """(n,) mean compute over the target."""
    pass_rate: Array
    """(n,) means."""
    num_averaged: Array
    """(n,) readings in each mean."""
    variance: Array
    """(n,) mean of the readings' squared standard errors, 0 if they are unknown."""


def bin_readings(state: SweepState) -> BinnedReadings:
    """The readings of `state`, averaged within each twentieth of the target, and beyond it within
    each doubling.
    """
    rows = []
    for index, run in enumerate(state.runs):
        bins: dict[int, list[tuple[float, float, float]]] = {}
        for compute, pass_rate, error in run.readings:
            share = compute / state.target
            # The end of a slice belongs to the slice, also where rounding lifts it a little.
            bin_index = int(np.ceil(share * NUM_BINS - 1e-9))
            # Beyond the target, such as after the user lowered it, one for each doubling
            if bin_index > NUM_BINS:
                bin_index = NUM_BINS + 1 + int(np.log2(share))
            bins.setdefault(bin_index, []).append(
                (share, pass_rate, np.nan if error is None else error)
            )
        for readings in bins.values():
            share, pass_rate, error = np.array(readings).T
            variance = float(np.mean(error[~np.isnan(error)] ** 2)) if (error >= 0).any() else 0.0
            rows.append((index, share.mean(), pass_rate.mean(), len(readings), variance))
    columns = np.array(rows, dtype=float).reshape(-1, 5).T
    return BinnedReadings(columns[0].astype(int), *columns[1:])
