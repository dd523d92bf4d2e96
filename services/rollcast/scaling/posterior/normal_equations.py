"""The linear part of the posterior in closed form: normal equations in (R_0, A), departures taken off, solved.

Arrays are (h, j, b m): departure, noise, node of B and C_mid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.departure import Departure

CERTAIN = 5.0
"""Standard deviations from a bound beyond which a normal distribution is taken to lie inside it."""
LEAST_ROOM = 1e-3
"""Probability of R_0 <= A <= 1 below which a node that falls loses weight. The draws see to the rest, and could not if
none of them lay there: a run that reads 1 from its start on."""


class Normal(NamedTuple):
    """Normal equations p (R_0 - level, A - level) = b of the linear part.

    `constant` is what else -2 log evidence holds.
    """

    p_00: Array
    p_01: Array
    p_11: Array
    b_0: Array
    b_1: Array
    constant: Array


def with_departures(
    plain: Normal, observations: Observations, departures: Sequence[Departure], weight: Array, rise: Array
) -> Normal:
    """The normal equations of every departure: each of its shapes takes v v^T off the precision of the points.

    weight: (j, n) of the points under each noise; rise: (n, b m) of the law at every node, in the points' rotation.
    """
    phases = {id(departure.shape): departure for departure in departures}  # one for all of its tails
    place = {shape: index for index, shape in enumerate(phases)}
    phase_of = [place[id(departure.shape)] for departure in departures]
    terms = [(departure.shape, departure.scale) for departure in phases.values()]
    taken, price = _direction(terms, observations, weight, None)
    seen = Seen(observations.rotation.sum(axis=1), observations.centred, rise)
    by_phase = _room(plain, len(phases), rise)
    for index in range(len(phases)):
        _without(plain, taken[index], price[index], seen, _at(by_phase, index))
    if phase_of == list(range(len(phases))) and all(departure.tail is None for departure in departures):
        return by_phase
    normal = _room(plain, len(departures), rise)
    tailed = [index for index, departure in enumerate(departures) if departure.tail is not None]
    tails = [(d.tail.shape, d.tail.scale) for d in departures if d.tail is not None]
    if tailed:
        direction, price = _direction(tails, observations, weight, taken[[phase_of[index] for index in tailed]])
    for index, phase in enumerate(phase_of):
        before, after = _at(by_phase, phase), _at(normal, index)
        if departures[index].tail is None:
            for part, same in zip(after, before, strict=True):
                part[:] = same
        else:
            tail = tailed.index(index)
            _without(before, direction[tail], price[tail], seen, after)
    return normal


def _room(plain: Normal, departures: int, rise: Array) -> Normal:
    """For the normal equations of so many departures."""
    noises, nodes = plain.p_00.shape[0], rise.shape[1]
    shapes = [(departures, noises, nodes)] * 5 + [(departures, noises, 1)]
    return Normal(*(np.empty(shape) for shape in shapes))


def _at(normal: Normal, index: int) -> Normal:
    return Normal(*(part[index] for part in normal))


class Seen(NamedTuple):
    """What the points see, in their rotation: a constant (n,), the readings (n,), the law at every node (n, b m)."""

    constant: Array
    data: Array
    rise: Array


def _without(normal: Normal, direction: Array, price: Array, seen: Seen, into: Normal) -> None:
    """The same after `direction` (j, n) has been taken off at the `price` (j,).

    Of one departure, whose arrays (j, b m) stay in a processor's cache.
    """
    along_rise = direction @ seen.rise
    along_fall = (direction @ seen.constant)[:, None] - along_rise
    along_data = (direction @ seen.data)[:, None]
    np.subtract(normal.p_00, along_fall * along_fall, out=into.p_00)
    np.subtract(normal.p_01, along_fall * along_rise, out=into.p_01)
    np.subtract(normal.p_11, along_rise * along_rise, out=into.p_11)
    np.subtract(normal.b_0, along_fall * along_data, out=into.b_0)
    np.subtract(normal.b_1, along_rise * along_data, out=into.b_1)
    into.constant[:] = normal.constant - along_data**2 + price[:, None]


def _direction(
    terms: Sequence[tuple[Array | None, float]], observations: Observations, weight: Array, taken: Array | None
) -> tuple[Array, Array]:
    """v (h, j, n) that each shape takes off as v v^T after `taken` (h, j, n), and (h, j) what its evidence pays.

    W phi / sqrt(1 / scale^2 + phi^T W phi), with W the precision that is left (Sherman and Morrison); 0 for no shape.
    """
    scales = np.array([1.0 if shape is None else scale for shape, scale in terms])
    none = np.zeros(observations.log_compute.size)
    phi = np.stack([none if shape is None else shape for shape, _ in terms]) @ observations.rotation.T
    weighted = weight * phi[:, None]
    if taken is not None:
        weighted -= taken * np.einsum("hjn,hn->hj", taken, phi)[:, :, None]
    information = 1.0 / scales[:, None] ** 2 + np.einsum("hjn,hn->hj", weighted, phi)
    return weighted / np.sqrt(information)[:, :, None], np.log(information * scales[:, None] ** 2)


class Conditional(NamedTuple):
    """Means of R_0 and A at nodes of the grid, their variances and covariance."""

    initial: Array
    asymptote: Array
    initial_variance: Array
    asymptote_variance: Array
    covariance: Array


def conditional(p_00: Array, p_01: Array, p_11: Array, b_0: Array, b_1: Array, *, level: float) -> Conditional:
    """Of any nodes' normal equations; next to no node of a grid is asked for more than its evidence."""
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    return Conditional(
        initial=(p_11 * b_0 - p_01 * b_1) * inverse + level,
        asymptote=(p_00 * b_1 - p_01 * b_0) * inverse + level,
        initial_variance=p_11 * inverse,
        asymptote_variance=p_00 * inverse,
        covariance=-p_01 * inverse,
    )


def log_evidence_of(normal: Normal, level: float) -> Array:
    """At every node, A held to [0, 1]."""
    # One departure after the other: what is computed of it stays in a processor's cache.
    return np.stack([_log_evidence_of(Normal(*parts), level) for parts in zip(*normal, strict=True)])


def _log_evidence_of(normal: Normal, level: float) -> Array:
    """Under one departure: arrays are (j, b m)."""
    p_00, p_01, p_11, b_0, b_1, constant = normal
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    initial = (p_11 * b_0 - p_01 * b_1) * inverse
    asymptote = (p_00 * b_1 - p_01 * b_0) * inverse
    scale = 1.0 / np.sqrt(p_00 * inverse)
    from_one, from_zero = (1.0 - level - asymptote) * scale, (asymptote + level) * scale
    log_evidence = initial * b_0
    log_evidence += asymptote * b_1
    log_evidence -= constant
    inside = np.ones(())
    if from_one.min() < CERTAIN:
        inside = _probability(from_one)
    if from_zero.min() < CERTAIN:
        inside = inside - _probability(-from_zero)
    log_evidence += np.log(inverse * np.square(np.maximum(inside, 1e-100)))
    falling = asymptote < initial
    if falling.any():
        spread = np.sqrt(((p_00 + p_11 + 2.0 * p_01) * inverse)[falling])
        room = ndtr(from_one[falling]) - ndtr((initial - asymptote)[falling] / spread)
        log_evidence[falling] += 2.0 * np.log(np.clip(room / LEAST_ROOM, 1e-100, 1.0))
    log_evidence *= 0.5
    return log_evidence


def _probability(deviation: Array) -> Array:
    """The normal distribution function within 3e-4 (Page 1977); the exact one would be half of the cost of a refit."""
    slope, cubic = 0.7978845608, 0.035677408  # sqrt(2 / pi), the slope at 0; Page's fitted coefficient of the cube
    return np.asarray(0.5 + 0.5 * np.tanh(deviation * (slope + cubic * deviation * deviation)))
