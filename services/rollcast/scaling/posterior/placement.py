"""Placement of the grid's nodes.

The grid is first laid over everything that the prior allows, with few nodes, and then moved to the
part that has weight, until the posterior of B and C_mid spreads over several nodes. The final grid
has more nodes over that part.
"""

from dataclasses import replace

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.posterior.departure import Departure
from rollcast.scaling.posterior.grid import Axes, Grid, Noises, Problem, evaluate, log_student_t
from rollcast.scaling.posterior.settings import (
    COARSE_NODES,
    FINE_NODES,
    MAX_FIRST_CELLS,
    NEGLIGIBLE_NODE_WEIGHT,
    PRIOR_REACH_SCALES,
)


def solve(problem: Problem, departures: list[Departure]) -> Grid:
    """The posterior on a grid that resolves it; noises and departures that turn out unlikely are
    dropped from it.
    """
    coarse = outline(problem, departures)
    # The fewest departures that have all except 4 % of the weight, in their order.
    heaviest_first = np.argsort(coarse.departure_weight)[::-1]
    cumulative_weight = np.cumsum(coarse.departure_weight[heaviest_first])
    # 0.04: posterior weight of all departures together that the final grid leaves out; chosen, not
    # measured.
    count = int(np.searchsorted(cumulative_weight, 1.0 - 0.04)) + 1
    likely = sorted(heaviest_first[:count].tolist())
    fine = replace(
        _move_axes(coarse, FINE_NODES), departures=tuple(departures[index] for index in likely)
    )
    return evaluate(problem, fine)


def outline(problem: Problem, departures: list[Departure]) -> Grid:
    """The posterior on a coarse grid with all departures: enough to find the likeliest law.

    The grid is placed with departures from the whole list. The posterior of each is elsewhere, so a
    grid that is placed with one of them would cut the others off.
    """
    axes = _place_axes(
        problem, _representative_departures(departures)
    )  # the slow part, so with few of them
    return evaluate(problem, replace(axes, departures=tuple(departures)))


def _representative_departures(departures: list[Departure]) -> list[Departure]:
    """Departures with which the grid is placed: some first phases without a tail, the longest among
    them, and for each onset the largest tail without a first phase, because a small tail hardly
    moves the law.
    """
    phases = [departure for departure in departures if departure.tail is None]
    # Only every fifth first phase is used while the grid is placed. Chosen for speed; placing with
    # candidates from the whole list is what matters (lab notes, "Calibration of the forecast").
    coarse_departure_stride = 5
    step = coarse_departure_stride if len(phases) > coarse_departure_stride else 1
    some_phases = phases[::-step][::-1]  # counted from the end, so that the longest is one of them
    tails = [(d.tail.scale, d) for d in departures if d.tail is not None and d.shape is None]
    largest = max((scale for scale, _ in tails), default=0.0)
    return some_phases + [departure for scale, departure in tails if scale == largest]


def _place_axes(problem: Problem, departures: list[Departure]) -> Axes:
    """Coarse axes over the posterior under these departures, with the noises
    that turn out likely.
    """
    prior = problem.prior
    least_noise = _least_log_noise(problem)
    whole_noise = _first_noise(problem, least_noise)  # ln of the whole noise
    axes = _first_axes(problem, departures, _one_drift(whole_noise, problem))
    # 8: times that the coarse grid is placed again at most; it is usually in place earlier.
    for _ in range(8):
        grid = evaluate(problem, axes)
        # (whole noise,): `noises` has the whole noise as its slower index.
        weight_of_noise = grid.noise_weight.reshape(whole_noise.size, -1).sum(axis=1)
        # If the likeliest node is at an edge, most of the weight may lie outside the axes.
        more_beyond = _at_an_edge(weight_of_noise) or _at_an_edge(grid.plane_weight)
        whole_noise = _narrow_nodes(whole_noise, weight_of_noise, COARSE_NODES[0], least_noise)
        axes = replace(_move_axes(grid, COARSE_NODES[1:]), noises=_one_drift(whole_noise, problem))
        carrying = grid.plane_weight[grid.plane_weight > 0]
        effective_nodes = float(
            np.exp(-np.sum(carrying * np.log(carrying)))
        )  # the exponential of the entropy
        # 6.0: effective nodes in the plane of B and C_mid at which the coarse grid is in place;
        # chosen, not measured.
        if effective_nodes >= 6.0 and not more_beyond:
            break
    # So far there was one rho; the likely noises among all pairs are found under the likeliest
    # departures only. 2: likeliest departures under which unlikely noises are dropped. Chosen for
    # speed.
    likeliest = np.argsort(grid.departure_weight)[-2:]
    axes = replace(
        axes,
        departures=tuple(departures[index] for index in likeliest),
        noises=_noises(whole_noise, np.flatnonzero(prior.drift_weight).tolist(), problem),
    )
    # 0.02: posterior weight below which a noise is dropped from the final grid; chosen, not
    # measured.
    is_likely = evaluate(problem, axes).noise_weight > 0.02
    noises = axes.noises
    likely = Noises(
        noises.log_scale[is_likely],
        noises.drift[is_likely],
        noises.log_prior[is_likely],
        noises.cell,
    )
    return replace(axes, noises=likely)


def _first_axes(problem: Problem, departures: list[Departure], noises: Noises) -> Axes:
    """Axes over everything that the prior allows."""
    prior = problem.prior
    exponent, exponent_scale = prior.log_exponent
    midpoint, midpoint_scale = prior.log_midpoint
    widest_exponent_cell, widest_midpoint_cell = MAX_FIRST_CELLS
    log_exponent = _around(
        exponent, PRIOR_REACH_SCALES * exponent_scale, COARSE_NODES[1], widest_exponent_cell
    )
    log_midpoint = _around(
        problem.log_reference + midpoint,
        PRIOR_REACH_SCALES * midpoint_scale,
        COARSE_NODES[2],
        widest_midpoint_cell,
    )
    return Axes(
        departures=tuple(departures),
        noises=noises,
        log_exponent=log_exponent,
        log_midpoint=np.tile(log_midpoint, (log_exponent.size, 1)),
    )


def _least_log_noise(problem: Problem) -> float:
    """Least ln of the whole noise: all points together determine R no better than 1e-6."""
    centre = np.mean(problem.noise_prior, axis=0)[0]
    combined = 0.5 * np.log(problem.observations.precision.sum())
    # 1e-6: pass rate. All points together determine R no better than this. Readings that repeat to
    # the last digit would drive the noise to 0, and the normal equations beyond double precision.
    return float(min(centre, float(np.log(1e-6) + combined)))


def _first_noise(problem: Problem, min_log_noise: float) -> Array:
    """Nodes of the ln of the whole noise over everything that the prior allows."""
    centre, scale = np.mean(problem.noise_prior, axis=0)
    # 30.0: upper limit of that search in prior scales, so that a known standard error is respected;
    # chosen, not measured.
    # 1.8: ln. The noise is searched at least within this factor of its prior centre; chosen, not
    # measured.
    reach = max(PRIOR_REACH_SCALES * scale, min(1.8, 30.0 * scale))
    return np.linspace(max(centre - reach, min_log_noise), centre + reach, COARSE_NODES[0])


def _one_drift(whole_noise: Array, problem: Problem) -> Noises:
    """Candidates with one rho, enough for placing: the whole noise decides how far the posterior
    reaches.

    rho only shares that noise out between its white part and the drift.
    """
    possible = np.flatnonzero(problem.prior.drift_weight)
    return _noises(whole_noise, [int(possible[possible.size // 2])], problem)


def _noises(whole_noise: Array, drifts: list[int], problem: Problem) -> Noises:
    """Every ln of the whole noise, s^2 (1 + rho^2), with every one of these `drifts`; the noise is
    the slower index.
    """
    prior = problem.prior
    rho = np.array(prior.drift)[drifts]
    log_drift_weight = np.log(np.array(prior.drift_weight)[drifts])
    # Readings that do not drift have a prior of their own.
    centre, scale = np.where(
        rho[:, None] == 0, problem.noise_prior.white, problem.noise_prior.drifting
    ).T
    # 3.0: degrees of freedom of Student's t, the prior of the ln of the noise; chosen, not
    # measured.
    density = log_student_t(whole_noise[:, None], centre, scale, 3.0)  # (whole noise, drifts)
    return Noises(
        log_scale=(whole_noise[:, None] - 0.5 * np.log1p(rho**2)).ravel(),
        drift=np.tile(rho, whole_noise.size),
        log_prior=(density + log_drift_weight).ravel(),
        cell=float(whole_noise[1] - whole_noise[0]),
    )


def _move_axes(grid: Grid, num_nodes: tuple[int, ...]) -> Axes:
    """The grid's axes, with `num_nodes` of ln B and ln C_mid over the part that carries weight."""
    axes = grid.axes
    plane = grid.plane_weight
    rows = np.broadcast_to(axes.log_exponent[:, None], plane.shape)  # (b, m) ln B of each node
    # The ridge on which B and C_mid make up for each other: the regression of ln C_mid on ln B.
    centre = float(np.sum(plane * rows))
    offset = rows - centre
    covariance = np.sum(plane * offset * axes.log_midpoint)
    variance = float(np.sum(plane * offset**2))
    # 1e-12: floor of the variance of ln B when the slope of the ridge is computed: avoids a
    # division by 0.
    slope = float(covariance / max(variance, 1e-12))
    across = axes.log_midpoint - slope * offset  # (b, m) ln C_mid less the ridge
    # One old cell more on each side of the part that carries weight.
    carrying = plane > NEGLIGIBLE_NODE_WEIGHT * plane.max()
    row_cell = axes.exponent_cell
    across_cell = abs(axes.midpoint_cell)
    new_rows = np.linspace(
        rows[carrying].min() - row_cell, rows[carrying].max() + row_cell, num_nodes[0]
    )
    new_across = np.linspace(
        across[carrying].min() - across_cell, across[carrying].max() + across_cell, num_nodes[1]
    )
    sheared = new_across + slope * (new_rows - centre)[:, None]
    return replace(axes, log_exponent=new_rows, log_midpoint=sheared)


def _around(centre: float, reach: float, num_nodes: int, widest_cell: float) -> Array:
    """Nodes from centre - reach to centre + reach, at least `num_nodes` and at most `widest_cell`
    apart.
    """
    needed = int(np.ceil(2.0 * reach / widest_cell)) + 1
    return np.linspace(centre - reach, centre + reach, max(num_nodes, needed))


def _narrow_nodes(nodes: Array, marginal: Array, num_nodes: int, lower_bound: float) -> Array:
    """`num_nodes` nodes over the part of `nodes` that carries weight, one old cell wider on each
    side, from `lower_bound`.

    If the last node is the likeliest, the new axis reaches beyond it by the whole width of the old
    one: standard errors that the user gave may be far too small.
    """
    carrying = np.flatnonzero(marginal > NEGLIGIBLE_NODE_WEIGHT * marginal.max())
    cell = nodes[1] - nodes[0]
    above = cell
    if int(np.argmax(marginal)) == nodes.size - 1:
        above = nodes[-1] - nodes[0]
    return np.linspace(
        max(nodes[carrying[0]] - cell, lower_bound), nodes[carrying[-1]] + above, num_nodes
    )


def _at_an_edge(marginal: Array) -> bool:
    """Whether the likeliest node is the first or the last of an axis, so that more weight may lie
    beyond.
    """
    likeliest = np.unravel_index(int(np.argmax(marginal)), marginal.shape)
    return any(
        index in (0, size - 1) for index, size in zip(likeliest, marginal.shape, strict=True)
    )
