"""Several runs, one budget: which to stop, which to continue, and what each choice is expected to lose.

What counts in the end is the best run. A run that is stopped keeps what it has now; one that continues ends where its
forecast says. The loss of a choice is how much lower the best run is expected to end than if all went on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rollcast.scaling.curve import Array
from rollcast.scaling.forecast import Forecast

MAX_ENUMERATED = 10
"""Up to this many runs every subset is looked at; beyond, runs are stopped one by one, the cheapest first."""


@dataclass(frozen=True)
class Choice:
    """The best set of a given size to continue.

    Attributes:
        continued, stopped: positions of the runs.
        expected_best: expected pass rate of the best run at the end.
        expected_loss: of `expected_best` against continuing all.
        loss_upper: 95 % quantile of that loss.
        saved: device-hours not spent.
        best_probability: for each run, the probability to end as the best one under this choice.
    """

    continued: tuple[int, ...]
    stopped: tuple[int, ...]
    expected_best: float
    expected_loss: float
    loss_upper: float
    saved: float
    best_probability: tuple[float, ...]


def allocate(forecasts: Sequence[Forecast], ends: Sequence[float]) -> list[Choice]:
    """One choice for each number of runs that continue, all of them first.

    Args:
        forecasts: n runs.
        ends: (n,) device-hours of each run at its planned end.

    Raises:
        ValueError: no runs, lengths differ, or an end lies before the run's last point.
    """
    if not forecasts or len(forecasts) != len(ends):
        raise ValueError(f"ends: {len(ends)} given for {len(forecasts)} runs; give one planned end for each run.")
    now, final, cost = [], [], []
    for index, (forecast, end) in enumerate(zip(forecasts, ends, strict=True)):
        last = float(forecast.curve.compute[-1])
        if end < last:
            raise ValueError(f"ends: {end:g} device-hours of run {index + 1} lie before its last point at {last:g}.")
        values = forecast.draws.law([last, end])
        order = np.random.default_rng(index).permutation(values.shape[1])
        now.append(values[0, order])
        final.append(values[1, order])
        cost.append(end - last)
    return _choices(np.array(now), np.array(final), np.array(cost))


def _choices(now: Array, final: Array, cost: Array) -> list[Choice]:
    """`now`, `final`: (n, d) pass rates if stopped and if continued."""
    count = now.shape[0]
    everything = final.max(axis=0)
    choices = []
    continued = tuple(range(count))
    for size in range(count, 0, -1):
        if count <= MAX_ENUMERATED:
            candidates = list(combinations(range(count), size))
        elif size == count:
            candidates = [continued]
        else:
            candidates = [tuple(run for run in continued if run != left) for left in continued]
        ends = [_ends(now, final, candidate) for candidate in candidates]
        means = [float(end.max(axis=0).mean()) for end in ends]
        best = int(np.argmax(means))
        continued = candidates[best]
        stopped = tuple(run for run in range(count) if run not in continued)
        loss = everything - ends[best].max(axis=0)
        winners = np.bincount(np.argmax(ends[best], axis=0), minlength=count) / now.shape[1]
        choices.append(
            Choice(
                continued=continued,
                stopped=stopped,
                expected_best=means[best],
                expected_loss=float(loss.mean()),
                loss_upper=float(np.quantile(loss, 0.95)),
                saved=float(cost[list(stopped)].sum()),
                best_probability=tuple(float(share) for share in winners),
            )
        )
    return choices


def _ends(now: Array, final: Array, continued: tuple[int, ...]) -> Array:
    keeps = np.isin(np.arange(now.shape[0]), continued)
    return np.where(keeps[:, None], final, now)
