"""The linear part of the posterior in closed form: normal equations in (R_0, A), departures taken
off, solved.

Arrays are (h, j, b m): departure, noise, node of B and C_mid. S is the law's rise, between 0 and 1;
n the points.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.observations import Observations
from rollcast.scaling.posterior.departure import Departure


class Normal(NamedTuple):
    """Normal equations p (R_0 - level, A - level) = b of the linear part.

    `constant` is the part of -2 ln evidence that depends neither on p nor on b.
    """

    p_00: Array
    p_01: Array
    p_11: Array
    b_0: Array
    b_1: Array
    constant: Array


def with_departures(
    plain: Normal,
    observations: Observations,
    departures: Sequence[Departure],
    weight: Array,
    rise: Array,
) -> Normal:
    """The normal equations of every departure: each of its shapes takes v v^T off the precision of
    the points.

    Candidates that differ only in their tail share the equations of their first phase, which are
    computed once.

    Args:
        plain: the normal equations without a departure.
        departures: the candidates, h of them.
        weight: (j, n) of the points under each noise.
        rise: (n, b m) of the law at every node, in the points' rotation.
    """
    # Candidates with the same first phase hold the same array, so its identity names the phase.
    phases = {id(departure.shape): departure for departure in departures}
    phase_indices = {shape: index for index, shape in enumerate(phases)}
    phase_by_departure = [phase_indices[id(departure.shape)] for departure in departures]
    phase_shapes = [(departure.shape, departure.scale) for departure in phases.values()]
    phase_directions, price = _directions(phase_shapes, observations, weight, None)
    points = RotatedPoints(observations.rotation.sum(axis=1), observations.centred, rise)
    by_phase = _empty(plain, len(phases), rise)
    for index in range(len(phases)):
        _take_off(
            plain, phase_directions[index], price[index], points, _select_departure(by_phase, index)
        )
    if phase_by_departure == list(range(len(phases))) and all(
        departure.tail is None for departure in departures
    ):
        return by_phase

    normal = _empty(plain, len(departures), rise)
    tailed = [index for index, departure in enumerate(departures) if departure.tail is not None]
    tails = [(d.tail.shape, d.tail.scale) for d in departures if d.tail is not None]
    if tailed:
        directions, price = _directions(
            tails,
            observations,
            weight,
            phase_directions[[phase_by_departure[index] for index in tailed]],
        )
    for index, phase in enumerate(phase_by_departure):
        phase_equations = _select_departure(by_phase, phase)
        departure_equations = _select_departure(normal, index)
        if departures[index].tail is None:
            for target, source in zip(departure_equations, phase_equations, strict=True):
                target[:] = source
        else:
            tail = tailed.index(index)
            _take_off(phase_equations, directions[tail], price[tail], points, departure_equations)
    return normal


def _empty(plain: Normal, num_departures: int, rise: Array) -> Normal:
    """Room for the normal equations of that many departures: (h, j, b m),
    the constant (h, j, 1).
    """
    num_noises = plain.p_00.shape[0]
    shape = (num_departures, num_noises, rise.shape[1])
    constant = np.empty((num_departures, num_noises, 1))
    return Normal(
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        constant,
    )


def _select_departure(normal: Normal, index: int) -> Normal:
    """Views of one departure's equations."""
    return Normal(*(equation[index] for equation in normal))


class RotatedPoints(NamedTuple):
    """The constant 1 (n,), the readings (n,) and the law's rise at every node (n, b m), in the
    points' rotation.
    """

    constant: Array
    data: Array
    rise: Array


def _take_off(
    normal: Normal, direction: Array, price: Array, points: RotatedPoints, into: Normal
) -> None:
    """Write into `into` the normal equations after `direction` (j, n) has been taken off at the
    `price` (j,).

    All arrays are of one departure, (j, b m), so that they stay in a processor's cache.
    """
    along_rise = direction @ points.rise  # v^T S
    along_fall = (direction @ points.constant)[:, None] - along_rise  # v^T (1 - S)
    along_data = (direction @ points.data)[:, None]
    np.subtract(normal.p_00, along_fall * along_fall, out=into.p_00)
    np.subtract(normal.p_01, along_fall * along_rise, out=into.p_01)
    np.subtract(normal.p_11, along_rise * along_rise, out=into.p_11)
    np.subtract(normal.b_0, along_fall * along_data, out=into.b_0)
    np.subtract(normal.b_1, along_rise * along_data, out=into.b_1)
    into.constant[:] = normal.constant - along_data**2 + price[:, None]


def _directions(
    shapes: Sequence[tuple[Array | None, float]],
    observations: Observations,
    weight: Array,
    removed_directions: Array | None,
) -> tuple[Array, Array]:
    """v (h, j, n) that each shape takes off as v v^T, and (h, j) its price, ln(1 + scale^2 phi^T W
    phi).

    v = W phi / sqrt(1 / scale^2 + phi^T W phi), with W the remaining precision (Sherman and
    Morrison).

    Args:
        shapes: (n,) phi and the prior scale of its amplitude; v is 0 for None.
        weight: (j, n) their precision before anything was taken off.
        removed_directions: (h, j, n) what each has lost already, or None.
    """
    scales = np.array([1.0 if shape is None else scale for shape, scale in shapes])
    zero = np.zeros(observations.log_compute.size)
    phi = (
        np.stack([zero if shape is None else shape for shape, _ in shapes])
        @ observations.rotation.T
    )
    weighted = weight * phi[:, None]  # (h, j, n) W phi
    if removed_directions is not None:
        weighted -= (
            removed_directions * np.einsum("hjn,hn->hj", removed_directions, phi)[:, :, None]
        )
    information = 1.0 / scales[:, None] ** 2 + np.einsum("hjn,hn->hj", weighted, phi)
    return weighted / np.sqrt(information)[:, :, None], np.log(information * scales[:, None] ** 2)


class Conditional(NamedTuple):
    """Means of R_0 and A at nodes of the grid, their variances and covariance."""

    initial: Array
    asymptote: Array
    initial_variance: Array
    asymptote_variance: Array
    covariance: Array


def conditional(
    p_00: Array, p_01: Array, p_11: Array, b_0: Array, b_1: Array, *, level: float
) -> Conditional:
    """R_0 and A from the normal equations of any nodes.

    Most nodes of a grid only need their evidence.
    """
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    return Conditional(
        initial=(p_11 * b_0 - p_01 * b_1) * inverse + level,
        asymptote=(p_00 * b_1 - p_01 * b_0) * inverse + level,
        initial_variance=p_11 * inverse,
        asymptote_variance=p_00 * inverse,
        covariance=-p_01 * inverse,
    )


def node_log_evidence(normal: Normal, level: float) -> Array:
    """(h, j, b m) ln of the evidence of every node, with A held to [0, 1]."""
    # One departure after the other, so that all that is computed for it stays in a processor's
    # cache.
    return np.stack(
        [_departure_log_evidence(Normal(*parts), level) for parts in zip(*normal, strict=True)]
    )


def _departure_log_evidence(normal: Normal, level: float) -> Array:
    """The evidence under one departure: (j, b m)."""
    p_00, p_01, p_11, b_0, b_1, constant = normal
    inverse = 1.0 / (p_00 * p_11 - p_01 * p_01)
    initial = (p_11 * b_0 - p_01 * b_1) * inverse
    asymptote = (p_00 * b_1 - p_01 * b_0) * inverse
    # -2 ln evidence is `constant` - b^T p^-1 b + ln det p, and b^T p^-1 b = R_0 b_0 + A b_1.
    log_evidence = initial * b_0
    log_evidence += asymptote * b_1
    log_evidence -= constant

    # The Gaussian of A is cut to [0, 1]: distances of its mean from these bounds, in its standard
    # deviations.
    scale = 1.0 / np.sqrt(p_00 * inverse)
    from_one = (1.0 - level - asymptote) * scale
    from_zero = (asymptote + level) * scale
    inside = np.ones(())
    # Standard deviations from a bound beyond which a node's distribution counts as inside it: the
    # error is below 3e-7.
    certain_grid_std = 5.0
    if from_one.min() < certain_grid_std:
        inside = _probability(from_one)
    if from_zero.min() < certain_grid_std:
        inside = inside - _probability(-from_zero)
    # Floor of a probability before its logarithm is taken.
    min_probability = 1e-100
    log_evidence += np.log(inverse * np.square(np.maximum(inside, min_probability)))

    # A node at which the law falls: next to no part of its Gaussian may have R_0 <= A <= 1.
    falling = asymptote < initial
    if falling.any():
        spread = np.sqrt(((p_00 + p_11 + 2.0 * p_01) * inverse)[falling])  # of A - R_0
        room = ndtr(from_one[falling]) - ndtr((initial - asymptote)[falling] / spread)
        # 1e-3: probability of R_0 <= A <= 1 below which a falling node loses weight. The draws
        # correct the rest, but could not if no draw were inside the bounds: a run that reads 1 from
        # its start on.
        share = np.clip(room / 1e-3, min_probability, 1.0)
        log_evidence[falling] += 2.0 * np.log(share)
    log_evidence *= 0.5
    return log_evidence


def _probability(deviation: Array) -> Array:
    """The normal distribution function within 3e-4 (Page 1977); the exact one would be half of the
    cost of a refit.
    """
    slope = 0.7978845608  # sqrt(2 / pi), the slope at 0
    cubic = 0.035677408  # Page's fitted coefficient of the cube
    return np.asarray(0.5 + 0.5 * np.tanh(deviation * (slope + cubic * deviation * deviation)))
