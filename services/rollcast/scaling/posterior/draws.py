"""Draws from the grid posterior: equally likely settings of law and noise.

Deterministic: nodes by systematic resampling, the linear part by a fixed low-discrepancy sequence.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN
from rollcast.scaling.posterior.departure import Departure, Tail, tail_shape
from rollcast.scaling.posterior.grid import Grid
from rollcast.scaling.posterior.settings import NUM_DRAWS, TAIL_SEARCH_LOG_COMPUTE, UNIFORM_MARGIN

_PLASTIC_NUMBER = 1.324717957244746
"""The root of x^3 = x + 1: steps of 1/x and 1/x^2 fill the unit square evenly (the R2 sequence)."""
# 1.618033988749895: steps of 1/x fill the unit interval evenly, and keep no step with the plastic
# number's.
_STEPS = [1 / _PLASTIC_NUMBER, 1 / _PLASTIC_NUMBER**2, 1 / 1.618033988749895]
UNIFORM: Array = np.mod(0.5 + np.outer(_STEPS, np.arange(1, NUM_DRAWS + 1)), 1.0).clip(
    UNIFORM_MARGIN, 1 - UNIFORM_MARGIN
)
"""(3, NUM_DRAWS) in (0, 1), for A, for R_0, for the tail."""
NORMAL: Array = ndtri(UNIFORM)
"""(3, NUM_DRAWS) the same numbers as standard normal values."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Equally likely settings, each (d,).

    Attributes:
        initial, asymptote, exponent, log_midpoint: of the law.
        noise, drift: s and rho.
        departure: index in `departures`.
        tail: gain for each e-fold of compute past its onset, 0 for none.
        log_onset: ln device-hours of the tail's onset.
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

    def __getitem__(self, indices: slice | NDArray[np.intp]) -> "Draws":
        cut = {
            field.name: getattr(self, field.name)[indices]
            for field in fields(self)
            if field.name != "departures"
        }
        return Draws(**cut, departures=self.departures)

    def law(self, compute: ArrayLike) -> Array:
        """Pass rate that the run approaches at `compute` (m,) device-hours, tail included, within
        [0, 1] -> (m, d).
        """
        law = self.sigmoid(compute)
        if self.tail.any():
            compute_array = np.atleast_1d(np.asarray(compute, dtype=float))
            # Per departure and not per draw, because there are many draws and few departures.
            shapes = np.zeros(
                (compute_array.size, len(self.departures))
            )  # (m, h), 0 without a tail
            for departure_index, departure in enumerate(self.departures):
                if departure.tail is not None:
                    shapes[:, departure_index] = tail_shape(compute_array, departure.tail.onset)
            law += self.tail * shapes[:, self.departure]
            np.clip(law, 0.0, 1.0, out=law)
        return law

    @property
    def has_ceiling(self) -> NDArray[np.bool_]:
        """(d,) whether the tail adds less than `ASYMPTOTE_MARGIN` while compute grows by ten."""
        # 10.0: ratio of compute over which a tail must gain less than ASYMPTOTE_MARGIN: as far as
        # forecasts are checked.
        return np.asarray(self.tail * np.log(10.0) < ASYMPTOTE_MARGIN)

    def sigmoid(self, compute: ArrayLike) -> Array:
        """Eq (1) alone at `compute` (m,) device-hours -> (m, d)."""
        with np.errstate(divide="ignore"):
            log_compute = np.log(np.atleast_1d(np.asarray(compute, dtype=float)))[:, None]
        # tanh is several times as fast as scipy's expit, and most of the time of a forecast is
        # spent here.
        rise = 0.5 + 0.5 * np.tanh(0.5 * self.exponent * (log_compute - self.log_midpoint))
        return np.asarray(self.initial + (self.asymptote - self.initial) * rise)

    def compute_to(self, target: float) -> Array:
        """(d,) device-hours at which each first reaches the pass rate `target`; 0 from the start
        on, inf never.

        In closed form for the law; with a tail, interpolated between computes a quarter of an
        e-fold apart.
        """
        is_reached = target <= self.initial
        is_never = target >= self.asymptote
        is_between = ~(is_reached | is_never)
        # Eq (1) solved for C. The odds of the other draws are not used; 1 keeps their logarithm
        # finite.
        gained = np.where(is_between, target - self.initial, 1.0)
        remaining_gain = np.where(is_between, self.asymptote - target, 1.0)
        # 600.0: ln device-hours. Larger computes are cut to this: exp overflows at 709.
        log_compute = np.minimum(
            self.log_midpoint + np.log(gained / remaining_gain) / self.exponent, 600.0
        )
        compute = np.where(is_never, np.inf, np.exp(log_compute))
        compute = np.where(is_reached, 0.0, compute)
        tailed = np.flatnonzero((self.tail != 0.0) & ~is_reached)
        if tailed.size:
            compute[tailed] = self[tailed]._search_compute(target)
        return compute

    def _search_compute(self, target: float) -> Array:
        """(d,) device-hours at which law and tail together first reach `target`; inf if not within
        the search.
        """
        before_onset, after_onset = TAIL_SEARCH_LOG_COMPUTE
        reference = float(np.median(self.log_onset))
        # 0.25: e-folds of compute between the places of that search; in between it is interpolated.
        log_compute = reference + np.arange(-before_onset, after_onset, 0.25)
        law = self.law(np.exp(log_compute))
        above = law >= target
        first_above = np.argmax(above, axis=0)  # (d,) the first place above; 0 also if no place is
        last_below = np.maximum(first_above - 1, 0)
        draw_index = np.arange(first_above.size)
        # 1e-12: pass rate: floor of the rise between two places of the search that is divided by.
        rise = np.maximum(law[first_above, draw_index] - law[last_below, draw_index], 1e-12)
        share = np.where(
            first_above > 0, np.clip((target - law[last_below, draw_index]) / rise, 0.0, 1.0), 1.0
        )
        log_crossing = log_compute[last_below] + share * (
            log_compute[first_above] - log_compute[last_below]
        )
        return np.where(above.any(axis=0), np.exp(log_crossing), np.inf)


def draw(grid: Grid, observations: Observations, tail_falls: float) -> Draws:
    """Draws with 0 <= R_0 <= A <= 1 exactly. `tail_falls`: prior probability that a tail falls."""
    # Each node as often as its posterior weight says; then R_0 and A within each from their
    # Gaussian.
    node = _resample(grid.weight.ravel())
    moments = grid.conditional(node)
    mean = moments.asymptote
    spread = np.sqrt(moments.asymptote_variance)
    asymptote, _ = _truncated_normal(0, mean, spread, np.ones(NUM_DRAWS))
    # R_0 given A: both are jointly Gaussian at a node.
    gain = moments.covariance / spread**2
    initial_mean = moments.initial + gain * (asymptote - mean)
    initial_variance = moments.initial_variance - gain**2 * spread**2
    # 1e-18: floor of the variance of R_0 given A, in squared pass rate: rounding may make it
    # negative.
    initial_spread = np.sqrt(np.maximum(initial_variance, 1e-18))
    initial, inside = _truncated_normal(1, initial_mean, initial_spread, asymptote)
    # The grid's weights know the bounds of A; those of R_0 given A are corrected here.
    keep = np.arange(NUM_DRAWS)
    # 0.999: if every draw has at least this probability to lie within its bounds, the draws are not
    # resampled.
    if np.any(inside < 0.999):
        keep = _resample(inside)
    departure, noise, exponent, midpoint = np.unravel_index(node[keep], grid.weight.shape)
    axes = grid.axes
    draws = Draws(
        initial=initial[keep],
        asymptote=asymptote[keep],
        exponent=np.exp(axes.log_exponent[exponent]),
        log_midpoint=axes.log_midpoint[exponent, midpoint],
        noise=np.exp(axes.noises.log_scale[noise]),
        drift=axes.noises.drift[noise],
        departure=departure,
        tail=np.zeros(NUM_DRAWS),
        log_onset=np.zeros(NUM_DRAWS),
        departures=axes.departures,
    )
    return _with_tails(draws, observations, tail_falls)


def _with_tails(draws: Draws, observations: Observations, falls: float) -> Draws:
    """The draws with a tail's amplitude from its posterior, given everything else except the first
    phase's.
    """
    tail = draws.tail.copy()
    log_onset = draws.log_onset.copy()
    for index in np.unique(draws.departure):
        departure = draws.departures[index]
        if departure.tail is None:
            continue
        draw_indices = np.flatnonzero(draws.departure == index)
        mean, variance = _amplitude(draws, draw_indices, departure.tail, departure, observations)
        tail[draw_indices] = mean + np.sqrt(variance) * NORMAL[2, draw_indices]
        log_onset[draw_indices] = np.log(departure.tail.onset)
    # On the grid an amplitude falls as often as it rises, which keeps it Gaussian. The prior's odds
    # are applied here.
    weight = np.full(tail.size, 0.5)
    weight[tail > 0.0] = 1.0 - falls
    weight[tail < 0.0] = falls
    # 1e-9: floor of a draw's weight: a prior may rule out all that the readings leave.
    return replace(draws, tail=tail, log_onset=log_onset)[_resample(np.maximum(weight, 1e-9))]


def _amplitude(
    draws: Draws,
    draw_indices: NDArray[np.intp],
    tail: Tail,
    departure: Departure,
    observations: Observations,
) -> tuple[Array, Array]:
    """Mean and variance (k,) of the tail's amplitude in the draws `draw_indices` (k,).

    The regression of the rotated residuals (n, k) on the tail's shape, with its Gaussian prior;
    before that the first phase is projected out, because its own amplitude is unknown as well.
    """
    sigmoid = draws[draw_indices].sigmoid(np.exp(observations.log_compute))
    residual = observations.rotation @ (observations.pass_rate[:, None] - sigmoid)
    drift_variance = draws.drift[draw_indices] ** 2 * observations.eigenvalues[:, None]
    precision = 1.0 / (draws.noise[draw_indices] ** 2 * (1.0 + drift_variance))  # (n, k)
    weighted = (observations.rotation @ tail.shape)[:, None] * precision
    if departure.shape is not None:
        phi = (observations.rotation @ departure.shape)[:, None]
        along = precision * phi / (1.0 / departure.scale**2 + np.sum(precision * phi * phi, axis=0))
        weighted = weighted - along * np.sum(weighted * phi, axis=0)
    information = 1.0 / tail.scale**2 + (observations.rotation @ tail.shape) @ weighted
    return np.sum(weighted * residual, axis=0) / information, 1.0 / information


def _truncated_normal(row: int, mean: Array, spread: Array, upper: Array) -> tuple[Array, Array]:
    """Normal draws (d,) cut to [0, upper] from a row of the sequence, and the probability of that
    interval.
    """
    values = mean + spread * NORMAL[row]
    inside = np.ones(mean.size)
    # 6.0: standard deviations from a bound beyond which a draw needs no truncation: the error is
    # below 1e-9.
    is_cut = np.minimum(mean, upper - mean) < 6.0 * spread
    if np.any(is_cut):
        mean = mean[is_cut]
        spread = spread[is_cut]
        upper = upper[is_cut]
        low = ndtr(-mean / spread)
        high = ndtr((upper - mean) / spread)
        # Inverse of the distribution function, restricted to the interval.
        uniform = low + UNIFORM[row, is_cut] * (high - low)
        values[is_cut] = np.clip(mean + spread * ndtri(uniform), 0.0, upper)
        # 1e-12: floor of the probability that a draw lies within its bounds: it is divided by, and
        # far outside it rounds to 0.
        inside[is_cut] = np.maximum(high - low, 1e-12)
    return values, inside


def _resample(weight: Array) -> NDArray[np.intp]:
    """(NUM_DRAWS,) places of `weight` in order, each as often as its weight says: systematic
    resampling.
    """
    cumulative = np.cumsum(weight)
    position = (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS * cumulative[-1]
    indices: NDArray[np.intp] = np.minimum(np.searchsorted(cumulative, position), weight.size - 1)
    return indices
