"""Ways in which a run departs from the law, each a shape over compute times an unknown amplitude.

A departure with the shape phi and an amplitude kappa ~ N(0, scale^2) adds scale^2 phi phi^T to the covariance of the
points.

    transient   max(0, 1 - C / end)             the nearly linear first phase; gone at `end`
    jump        1 from `start` on               the data, the context length or the recipe was changed; a collapse
    slide       (C - start) / (C_last - start)  a slow decline, or a second climb, from `start` on
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rollcast.scaling.curve import Array
from rollcast.scaling.observations import Observations
from rollcast.scaling.prior import Prior

FIRST_BREAK = 2
"""Number of points before the first break that is considered."""


@dataclass(frozen=True, eq=False)
class Departure:
    """One candidate, or none at all.

    Attributes:
        shape: (n,) over the merged points; None if the run keeps to the law.
        scale: prior standard deviation of the amplitude, in pass rate.
        log_prior: ln of its prior probability; of a transient, to end anywhere.
        at: device-hours at which it ends (transient) or starts (jump, slide); 0 for none.
        cell: the ln device-hours that `at` stands for; a transient's probability to end there depends on C_mid.
    """

    shape: Array | None
    scale: float
    log_prior: float
    at: float
    cell: tuple[float, float] = (-np.inf, np.inf)


def transients(observations: Observations, prior: Prior, ends: list[float]) -> list[Departure]:
    """No departure, and a transient until each of `ends` (ascending device-hours).

    Each transient stands for all ends that lie nearer to its own than to the others'.
    """
    weight = prior.transient_weight if ends else 0.0
    compute = np.exp(observations.log_compute)
    between = 0.5 * (np.log(ends[1:]) + np.log(ends[:-1]))
    edges = [-np.inf, *between.tolist(), np.inf] if ends else []
    return [
        Departure(None, 0.0, float(np.log1p(-weight)), 0.0),
        *(
            Departure(transient_shape(compute, end), prior.transient_scale, float(np.log(weight)), end, cell)
            for end, cell in zip(ends, pairwise(edges), strict=True)
        ),
    ]


def transient_shape(compute: Array, end: float) -> Array:
    """max(0, 1 - C / end) at `compute` (m,) -> (m,)."""
    return np.maximum(1.0 - compute / end, 0.0)


def break_shapes(compute: Array) -> tuple[Array, Array]:
    """Jumps and slides from each of the points `FIRST_BREAK`.. on, two points at least behind it: each (k, n)."""
    starts = compute[FIRST_BREAK : compute.size - 1, None]
    jumps = (compute >= starts).astype(float)
    slides = np.clip((compute - starts) / (compute[-1] - starts), 0.0, 1.0)
    return jumps, slides
