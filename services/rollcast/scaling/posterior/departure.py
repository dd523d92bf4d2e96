"""Ways in which a run departs from the law, each a shape over compute times an unknown amplitude.

A shape phi with an amplitude kappa ~ N(0, scale^2) adds scale^2 phi phi^T to the covariance of the
points.

    first phase  max(0, 1 - C / end)             nearly linear, gone at `end`; large if a model
                                                 first learns the form of an answer
    tail         ln(1 + C / onset)               gains (or losses) that go on past any ceiling, the
                                                 same for each e-fold
    jump         1 from `start` on               the data, the context length or the recipe was
                                                 changed; a collapse
    slide        (C - start) / (C_last - start)  a slow decline, or a second climb, from `start` on

A run has at most one of first phase, jump and slide, and may have a tail in addition.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.prior import Prior
from rollcast.scaling.posterior.settings import MIN_POINTS_BEFORE_BREAK


@dataclass(frozen=True, eq=False)
class Tail:
    """Gains that go on past the law.

    Attributes:
        shape: (n,) over the merged points.
        scale: prior standard deviation of the amplitude, in pass rate for each e-fold.
        onset: device-hours.
    """

    shape: Array
    scale: float
    onset: float


@dataclass(frozen=True, eq=False)
class Departure:
    """One candidate, or none at all.

    Attributes:
        shape: (n,) over the merged points; None if the run keeps to the law except for a tail.
            Candidates that differ only in their tail share this array.
        scale: prior standard deviation of the amplitude, in pass rate.
        log_prior: ln of its prior probability; for a first phase, to end anywhere.
        at: device-hours at which it ends (first phase) or starts (jump, slide); 0 for none.
        cell: the ln device-hours that `at` represents; the probability of a first phase to end
            there depends on C_mid.
        tail: the tail that comes in addition, or None.
    """

    shape: Array | None
    scale: float
    log_prior: float
    at: float
    cell: tuple[float, float] = (-np.inf, np.inf)
    tail: Tail | None = None


def candidates(observations: Observations, prior: Prior, ends: list[float]) -> list[Departure]:
    """Every first phase, and no first phase, each with every tail and without a tail.

    A first phase until each of `ends` (ascending device-hours) represents all ends that are nearer
    to its own than to the others'. Its amplitude is small; or large, if the run first learned the
    form of an answer, which is soon over.
    """
    if not ends:
        return with_tails([Departure(None, 0.0, 0.0, 0.0)], observations, prior)
    weight = prior.transient_weight
    compute = np.exp(observations.log_compute)
    # The borders of the cells: half-way between neighbouring ends in ln compute.
    cell_borders = 0.5 * (np.log(ends[1:]) + np.log(ends[:-1]))
    cells = pairwise([-np.inf, *cell_borders.tolist(), np.inf])
    first_phases = [Departure(None, 0.0, float(np.log1p(-weight)), 0.0)]
    for end, cell in zip(ends, cells, strict=True):
        sizes = [(prior.transient_scale, 1.0 - prior.jump_weight)]
        # A model learns the form of an answer early; a large later jump is a change of regime.
        if end <= prior.jump_until * compute[-1]:
            sizes.append((prior.jump_scale, prior.jump_weight))
        for scale, share in sizes:
            if share > 0.0:
                shape = transient_shape(compute, end)
                first_phases.append(
                    Departure(shape, scale, float(np.log(weight * share)), end, cell)
                )
    return with_tails(first_phases, observations, prior)


def with_tails(
    departures: list[Departure], observations: Observations, prior: Prior
) -> list[Departure]:
    """Each of the departures without a tail, and with every tail."""
    return [
        replace(departure, tail=tail, log_prior=departure.log_prior + log_weight)
        for tail, log_weight in _tails(np.exp(observations.log_compute), prior)
        for departure in departures
    ]


def _tails(compute: Array, prior: Prior) -> list[tuple[Tail | None, float]]:
    """No tail, and one of each onset and scale, with the ln of its prior probability."""
    tails: list[tuple[Tail | None, float]] = [(None, float(np.log1p(-prior.tail_weight)))]
    if prior.tail_weight == 0.0:
        return tails
    last = float(compute[-1])
    log_weight = float(np.log(prior.tail_weight / (len(prior.tail_onset) * len(prior.tail_scale))))
    for share in prior.tail_onset:
        onset = share * last
        shape = tail_shape(compute, onset)
        tails.extend((Tail(shape, scale, onset), log_weight) for scale in prior.tail_scale)
    return tails


def tail_shape(compute: Array, onset: float) -> Array:
    """ln(1 + C / onset) at `compute` (m,) -> (m,)."""
    return np.asarray(np.log1p(compute / onset))


def transient_shape(compute: Array, end: float) -> Array:
    """max(0, 1 - C / end) at `compute` (m,) -> (m,)."""
    return np.maximum(1.0 - compute / end, 0.0)


def break_shapes(compute: Array) -> tuple[Array, Array]:
    """Jumps and slides, each (k, n), that start at the points from `MIN_POINTS_BEFORE_BREAK` to the
    last but one.
    """
    starts = compute[MIN_POINTS_BEFORE_BREAK : compute.size - 1, None]
    jumps = (compute >= starts).astype(float)
    slides = np.clip((compute - starts) / (compute[-1] - starts), 0.0, 1.0)
    return jumps, slides
