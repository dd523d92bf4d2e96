"""Draws from the grid posterior: equally likely settings of law and noise.

Deterministic: nodes by systematic resampling, the linear part by a fixed low-discrepancy sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from rollcast.scaling.law.curve import MARGIN, Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.departure import Departure, Tail, tail_shape
from rollcast.scaling.posterior.grid import Grid

NUM_DRAWS = 4096
"""Of one forecast."""
_PLASTIC = 1.324717957244746
"""The plastic number, x^3 = x + 1: steps of 1/x and 1/x^2 fill the unit square evenly (the R2 sequence)."""
_GOLDEN = 1.618033988749895
"""Steps of 1/x fill the unit interval evenly, and keep no step with the plastic number's."""
UNIFORM: Array = np.mod(
    0.5 + np.outer([1 / _PLASTIC, 1 / _PLASTIC**2, 1 / _GOLDEN], np.arange(1, NUM_DRAWS + 1)), 1.0
).clip(1e-9, 1 - 1e-9)
"""(3, NUM_DRAWS) in (0, 1): for A, for R_0, for the tail."""
NORMAL: Array = ndtri(UNIFORM)
"""The same as standard normal values."""
BEYOND_SIGHT = 10.0
"""Times the compute at the end of what is in sight: a run whose tail still gains over this stretch has no ceiling."""
LARGEST_LOG_COMPUTE = 600.0
"""ln device-hours, short of the 709 at which exp overflows: so much compute is never."""
SEARCHED = (12.0, 7.0)
"""e-folds of compute before and after a tail's onset in which a pass rate is looked for: a thousand times as much
compute is out of sight, and so is what a tail might gain by then."""
SEARCH_STEP = 0.25
"""e-folds."""
WHOLE = 0.999
"""Probability of the bounds from which draws need no weights."""
IMPOSSIBLE = 1e-9
"""Floor of the weight of a draw."""
CERTAIN = 6.0
"""Standard deviations from a bound beyond which a normal distribution is taken to lie inside it."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Equally likely settings, each (d,).

    Attributes:
        initial, asymptote, exponent, log_midpoint: of the law.
        noise, drift: s and rho.
        departure: index in `departures`.
        tail: gain for each e-fold of compute past its onset, 0 for none; log_onset: ln device-hours.
        departures: candidates, the same for all.
    """

    initial: Array
    asymptote: Array
    exponent: Array
    log_midpoint: Array
    noise: Array
    drift: Array
    departure: NDArray[np.intp]
    tail: Array
    log_onset: Array
    departures: tuple[Departure, ...]

    def __getitem__(self, part: slice | NDArray[np.intp]) -> Draws:
        cut = {field.name: getattr(self, field.name)[part] for field in fields(self) if field.name != "departures"}
        return Draws(**cut, departures=self.departures)

    def law(self, compute: ArrayLike) -> Array:
        """What the run heads for at `compute` (m,) device-hours, tail included, within [0, 1] -> (m, d)."""
        law = self.sigmoid(compute)
        if self.tail.any():
            at = np.atleast_1d(np.asarray(compute, dtype=float))
            law += self.tail * self._tail_shapes(at)[:, self.departure]
            np.clip(law, 0.0, 1.0, out=law)
        return law

    def _tail_shapes(self, compute: Array) -> Array:
        """Of every departure at `compute` (m,) -> (m, h), 0 without a tail: there are many draws and few departures."""
        shapes = np.zeros((compute.size, len(self.departures)))
        for place, departure in enumerate(self.departures):
            if departure.tail is not None:
                shapes[:, place] = tail_shape(compute, departure.tail.onset)
        return shapes

    @property
    def has_ceiling(self) -> NDArray[np.bool_]:
        """(d,) whether its tail adds less than `MARGIN` over the stretch beyond what is in sight."""
        return np.asarray(self.tail * np.log(BEYOND_SIGHT) < MARGIN)

    def sigmoid(self, compute: ArrayLike) -> Array:
        """Eq (1) alone at `compute` (m,) device-hours -> (m, d)."""
        with np.errstate(divide="ignore"):
            log_compute = np.log(np.atleast_1d(np.asarray(compute, dtype=float)))[:, None]
        # tanh is several times as fast as scipy's expit, and most of the time of a forecast goes here
        rise = 0.5 + 0.5 * np.tanh(0.5 * self.exponent * (log_compute - self.log_midpoint))
        return np.asarray(self.initial + (self.asymptote - self.initial) * rise)

    def compute_to(self, target: float) -> Array:
        """Device-hours at which each first reaches the pass rate `target` (d,); 0 from the start on, inf never.

        Closed form for the law; where there is a tail, interpolated between computes a quarter of an e-fold apart.
        """
        reached, open_ = target <= self.initial, target >= self.asymptote
        odds = np.where(reached | open_, 1.0, target - self.initial) / np.where(
            reached | open_, 1.0, self.asymptote - target
        )
        log_compute = np.minimum(self.log_midpoint + np.log(odds) / self.exponent, LARGEST_LOG_COMPUTE)
        compute = np.where(reached, 0.0, np.where(open_, np.inf, np.exp(log_compute)))
        tailed = np.flatnonzero((self.tail != 0.0) & ~reached)
        if tailed.size:
            compute[tailed] = self[tailed]._searched(target)
        return compute

    def _searched(self, target: float) -> Array:
        reference = float(np.median(self.log_onset))
        log_compute = reference + np.arange(-SEARCHED[0], SEARCHED[1], SEARCH_STEP)
        law = self.law(np.exp(log_compute))
        above = law >= target
        after = np.argmax(above, axis=0)
        each = np.arange(after.size)
        before = np.maximum(after - 1, 0)
        rise = np.maximum(law[after, each] - law[before, each], 1e-12)
        share = np.where(after > 0, np.clip((target - law[before, each]) / rise, 0.0, 1.0), 1.0)
        found = log_compute[before] + share * (log_compute[after] - log_compute[before])
        return np.where(above.any(axis=0), np.exp(found), np.inf)


def draw(grid: Grid, observations: Observations, tail_falls: float) -> Draws:
    """Draws with 0 <= R_0 <= A <= 1 exactly. `tail_falls`: prior probability that a tail falls."""
    node = _resample(grid.weight.ravel())
    given = grid.conditional(node)
    mean, spread = given.asymptote, np.sqrt(given.asymptote_variance)
    asymptote, _ = _truncated_normal(0, mean, spread, np.ones(NUM_DRAWS))
    gain = given.covariance / spread**2
    initial_mean = given.initial + gain * (asymptote - mean)
    initial_spread = np.sqrt(np.maximum(given.initial_variance - gain**2 * spread**2, 1e-18))
    initial, inside = _truncated_normal(1, initial_mean, initial_spread, asymptote)
    # The grid's weights hold A to its bounds; those of R_0 given A are made good here.
    keep = _resample(inside) if np.any(inside < WHOLE) else np.arange(NUM_DRAWS)
    departure, noise, exponent, midpoint = np.unravel_index(node[keep], grid.weight.shape)
    draws = Draws(
        initial=initial[keep],
        asymptote=asymptote[keep],
        exponent=np.exp(grid.axes.log_exponent[exponent]),
        log_midpoint=grid.axes.log_midpoint[exponent, midpoint],
        noise=np.exp(grid.axes.noise[noise]),
        drift=grid.axes.drift[noise],
        departure=departure,
        tail=np.zeros(NUM_DRAWS),
        log_onset=np.zeros(NUM_DRAWS),
        departures=grid.axes.departures,
    )
    return _with_tails(draws, observations, tail_falls)


def _with_tails(draws: Draws, observations: Observations, falls: float) -> Draws:
    """The same with a tail's amplitude drawn from its posterior, given everything else but the first phase's."""
    tail, log_onset = draws.tail.copy(), draws.log_onset.copy()
    for index in np.unique(draws.departure):
        departure = draws.departures[index]
        if departure.tail is None:
            continue
        mine = np.flatnonzero(draws.departure == index)
        mean, variance = _amplitude(draws, mine, departure.tail, departure, observations)
        tail[mine] = mean + np.sqrt(variance) * NORMAL[2, mine]
        log_onset[mine] = np.log(departure.tail.onset)
    # On the grid an amplitude falls as often as it rises, which keeps it Gaussian. Here the prior's odds are made good.
    sign = np.where(tail < 0.0, falls, np.where(tail > 0.0, 1.0 - falls, 0.5))
    # Never quite 0: a prior may rule out all that the readings leave.
    return replace(draws, tail=tail, log_onset=log_onset)[_resample(np.maximum(sign, IMPOSSIBLE))]


def _amplitude(
    draws: Draws, mine: NDArray[np.intp], tail: Tail, departure: Departure, observations: Observations
) -> tuple[Array, Array]:
    """Mean and variance (k,) of the tail's amplitude in the draws `mine` (k,)."""
    sigmoid = draws[mine].sigmoid(np.exp(observations.log_compute))
    residual = observations.rotation @ (observations.pass_rate[:, None] - sigmoid)
    precision = 1.0 / (draws.noise[mine] ** 2 * (1.0 + draws.drift[mine] ** 2 * observations.eigenvalues[:, None]))
    weighted = (observations.rotation @ tail.shape)[:, None] * precision
    if departure.shape is not None:
        phi = (observations.rotation @ departure.shape)[:, None]
        along = precision * phi / (1.0 / departure.scale**2 + np.sum(precision * phi * phi, axis=0))
        weighted = weighted - along * np.sum(weighted * phi, axis=0)
    information = 1.0 / tail.scale**2 + (observations.rotation @ tail.shape) @ weighted
    return np.sum(weighted * residual, axis=0) / information, 1.0 / information


def _truncated_normal(row: int, mean: Array, spread: Array, upper: Array) -> tuple[Array, Array]:
    """Normal draws (d,) cut to [0, upper] from a row of the sequence, and the probability of that interval."""
    values, inside = mean + spread * NORMAL[row], np.ones(mean.size)
    cut = np.minimum(mean, upper - mean) < CERTAIN * spread
    if np.any(cut):
        mean, spread, upper = mean[cut], spread[cut], upper[cut]
        low, high = ndtr(-mean / spread), ndtr((upper - mean) / spread)
        values[cut] = np.clip(mean + spread * ndtri(low + UNIFORM[row, cut] * (high - low)), 0.0, upper)
        inside[cut] = np.maximum(high - low, 1e-12)
    return values, inside


def _resample(weight: Array) -> NDArray[np.intp]:
    cumulative = np.cumsum(weight)
    position = (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS * cumulative[-1]
    found: NDArray[np.intp] = np.minimum(np.searchsorted(cumulative, position), weight.size - 1)
    return found
