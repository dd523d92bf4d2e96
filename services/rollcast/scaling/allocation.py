"""Several runs, one budget: which to stop, which to continue, and what each choice is expected to lose.

What counts in the end is the best run. A run that is stopped keeps what it has now; one that continues ends where its
forecast says. A run that fell has no forecast: it stays where its last readings are, and going on gains nothing. The
loss of a choice is how much lower the best run is expected to end than if all went on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rollcast.scaling.curve import Array
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.verdict import VerdictKind

MAX_ENUMERATED = 10
"""Up to this many runs every subset is looked at; beyond, runs are stopped one by one, the cheapest first."""


RECENT = 3
"""At least so many of the last readings, and a tenth of all, say where a run is that fell."""


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
        verdicts: of each run; the figures rest on forecasts that only forecastable and saturated vouch for.
    """

    continued: tuple[int, ...]
    stopped: tuple[int, ...]
    expected_best: float
    expected_loss: float
    loss_upper: float
    saved: float
    best_probability: tuple[float, ...]
    verdicts: tuple[VerdictKind, ...]


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
        rng = np.random.default_rng(index)
        if forecast.verdict.kind is VerdictKind.NOT_SIGMOID:
            values = np.tile(_recent(forecast, rng), (2, 1))
        else:
            values = forecast.draws.law([last, end])
            values = values[:, rng.permutation(values.shape[1])]
        now.append(values[0])
        final.append(values[1])
        cost.append(end - last)
    verdicts = tuple(forecast.verdict.kind for forecast in forecasts)
    return _choices(np.array(now), np.array(final), np.array(cost), verdicts)


def _recent(forecast: Forecast, rng: np.random.Generator) -> Array:
    """Draws (d,) of the mean of the last readings, as uncertain as their scatter about it."""
    readings = forecast.curve.pass_rate
    readings = readings[-max(RECENT, readings.size // 10) :]
    spread = float(np.std(readings, ddof=1)) / np.sqrt(readings.size)
    draws: Array = readings.mean() + spread * rng.standard_normal(forecast.draws.asymptote.size)
    return draws.clip(0.0, 1.0)


def _choices(now: Array, final: Array, cost: Array, verdicts: tuple[VerdictKind, ...]) -> list[Choice]:
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
                verdicts=verdicts,
            )
        )
    return choices


def _ends(now: Array, final: Array, continued: tuple[int, ...]) -> Array:
    keeps = np.isin(np.arange(now.shape[0]), continued)
    return np.where(keeps[:, None], final, now)
