"""Ways in which a run departs from the law, each a shape over compute times an unknown amplitude.

A shape phi with an amplitude kappa ~ N(0, scale^2) adds scale^2 phi phi^T to the covariance of the points.

    first phase  max(0, 1 - C / end)             nearly linear, gone at `end`; large where a model first learns the form
                                                 of an answer
    tail         ln(1 + C / onset)               gains (or losses) that go on past any ceiling, so much for each e-fold
    jump         1 from `start` on               the data, the context length or the recipe was changed; a collapse
    slide        (C - start) / (C_last - start)  a slow decline, or a second climb, from `start` on

A run has at most one of first phase, jump and slide, and may have a tail beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.prior import Prior

FIRST_BREAK = 2
"""Number of points before the first break that is considered."""


@dataclass(frozen=True, eq=False)
class Tail:
    """What goes on past the law: (n,) over the merged points, the scale of its amplitude, device-hours of its onset."""

    shape: Array
    scale: float
    onset: float


@dataclass(frozen=True, eq=False)
class Departure:
    """One candidate, or none at all.

    Attributes:
        shape: (n,) over the merged points; None if the run keeps to the law but for a tail.
        scale: prior standard deviation of the amplitude, in pass rate.
        log_prior: ln of its prior probability; of a first phase, to end anywhere.
        at: device-hours at which it ends (transient) or starts (jump, slide); 0 for none.
        cell: the ln device-hours that `at` stands for; a transient's probability to end there depends on C_mid.
    """

    shape: Array | None
    scale: float
    log_prior: float
    at: float
    cell: tuple[float, float] = (-np.inf, np.inf)
    tail: Tail | None = None


def candidates(observations: Observations, prior: Prior, ends: list[float]) -> list[Departure]:
    """Every first phase, and none, with every tail, and with none.

    A first phase until each of `ends` (ascending device-hours) stands for all ends that lie nearer to its own than to
    the others'. Its amplitude is small, or large where the run first learned the form of an answer, which is soon over.
    """
    weight = prior.transient_weight if ends else 0.0
    compute = np.exp(observations.log_compute)
    between = 0.5 * (np.log(ends[1:]) + np.log(ends[:-1]))
    edges = [-np.inf, *between.tolist(), np.inf] if ends else []
    sizes = ((prior.transient_scale, 1.0 - prior.jump_weight), (prior.jump_scale, prior.jump_weight))
    first_phases = [
        Departure(None, 0.0, float(np.log1p(-weight)), 0.0),
        *(
            Departure(transient_shape(compute, end), scale, float(np.log(weight * share)), end, cell)
            for end, cell in zip(ends, pairwise(edges), strict=True)
            for scale, share in sizes
            if share > 0.0 and (scale == prior.transient_scale or end <= prior.jump_until * compute[-1])
        ),
    ]
    return with_tails(first_phases, observations, prior)


def with_tails(departures: list[Departure], observations: Observations, prior: Prior) -> list[Departure]:
    """Each of them without a tail, and with every tail."""
    return [
        replace(departure, tail=tail, log_prior=departure.log_prior + log_weight)
        for tail, log_weight in _tails(np.exp(observations.log_compute), prior)
        for departure in departures
    ]


def _tails(compute: Array, prior: Prior) -> list[tuple[Tail | None, float]]:
    """No tail, and one of each onset and scale, with the ln of its prior probability."""
    last = float(compute[-1])
    kinds = [(share * last, scale) for share in prior.tail_onset for scale in prior.tail_scale]
    none: list[tuple[Tail | None, float]] = [(None, float(np.log1p(-prior.tail_weight)))]
    if prior.tail_weight == 0.0:
        return none
    log_weight = float(np.log(prior.tail_weight / len(kinds)))
    return none + [(Tail(tail_shape(compute, onset), scale, onset), log_weight) for onset, scale in kinds]


def tail_shape(compute: Array, onset: float) -> Array:
    """ln(1 + C / onset) at `compute` (m,) -> (m,)."""
    return np.asarray(np.log1p(compute / onset))


def transient_shape(compute: Array, end: float) -> Array:
    """max(0, 1 - C / end) at `compute` (m,) -> (m,)."""
    return np.maximum(1.0 - compute / end, 0.0)


def break_shapes(compute: Array) -> tuple[Array, Array]:
    """Jumps and slides from each of the points `FIRST_BREAK`.. on, two points at least behind it: each (k, n)."""
    starts = compute[FIRST_BREAK : compute.size - 1, None]
    jumps = (compute >= starts).astype(float)
    slides = np.clip((compute - starts) / (compute[-1] - starts), 0.0, 1.0)
    return jumps, slides
