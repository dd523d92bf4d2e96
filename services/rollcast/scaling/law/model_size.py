"""The power law across model sizes (arXiv 2509.25300), for choosing the size before the run.

    ln L(N, X) = E(N) - k(N) ln X,   k(N) = k_max / (1 + N_0 / N),   E(N) = e_0 + e_1 ln N

L is the loss 1 - pass rate, N the number of parameters, X the compute in device-hours (or the
samples seen). Larger models learn faster, with an efficiency k that saturates in N. For a given N_0
the law is linear in (e_0, e_1, k_max): that part is solved in closed form over a grid of N_0, which
is kept as a posterior. The law describes the middle of a run, in which the loss falls as a power;
near the asymptote of one run its own sigmoid is the better guide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.chances import best_chances
from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.settings import MAX_LOG_BUDGET, SIZE_LAW_PRIOR_VARIANCE


@dataclass(frozen=True, eq=False)
class ModelSizeLaw:
    """Draws of the law: each (d,); `noise` is the scatter of ln L about it."""

    constant: Array
    size_slope: Array
    efficiency: Array
    saturation: Array
    noise: Array

    def pass_rate(
        self,
        size: float,
        compute: Sequence[float] | Array,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    ) -> Array:
        """1 - L of a model of `size` parameters at `compute` (m,) -> (q, m), scatter included."""
        scatter = self.noise * np.random.default_rng(1).standard_normal(self.noise.size)
        values = 1.0 - np.exp(self._log_loss(size, compute) + scatter[:, None])
        return np.asarray(np.quantile(np.clip(values, 0.0, 1.0), quantiles, axis=0))

    def compute_to_target(
        self, size: float, target: float, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> Array:
        """Device-hours until `size` reaches the pass rate `target` -> (q,), inf if it never does.

        Raises:
            ValueError: target is no pass rate below 1.
        """
        if not 0 <= target < 1:
            raise ValueError(f"target: {target:g} is no pass rate below 1.")
        efficiency = self._efficiency(size)
        need = self.constant + self.size_slope * np.log(size) - np.log(1.0 - target)
        log_compute = np.where(
            efficiency > 1e-9,
            need / np.maximum(efficiency, 1e-9),
            np.where(need <= 0, -np.inf, np.inf),
        )
        ordered = np.sort(np.exp(np.clip(log_compute, -700.0, 700.0)))
        # Beyond any budget counts as never.
        ordered = np.where(ordered > np.exp(MAX_LOG_BUDGET), np.inf, ordered)
        return np.asarray(ordered[np.rint(np.asarray(quantiles) * (ordered.size - 1)).astype(int)])

    def best_size(self, sizes: Sequence[float], compute: float) -> tuple[int, Array]:
        """Position of the size with the highest median pass rate at `compute`, and each size's
        probability to win.
        """
        loss = np.stack([self._log_loss(size, [compute])[:, 0] for size in sizes])
        return int(np.argmin(np.median(loss, axis=1))), best_chances(-loss)

    def switches(
        self, sizes: Sequence[float], compute: Sequence[float] | Array
    ) -> list[tuple[float, int]]:
        """Budgets of the grid `compute` (m,) ascending at which the best size changes:
        (device-hours, position).
        """
        loss = np.stack([np.median(self._log_loss(size, compute), axis=0) for size in sizes])
        best = np.argmin(loss, axis=0)
        changes = np.flatnonzero(np.diff(best, prepend=-1))
        return [(float(np.asarray(compute)[index]), int(best[index])) for index in changes]

    def _efficiency(self, size: float) -> Array:
        return np.asarray(self.efficiency / (1.0 + self.saturation / size))

    def _log_loss(self, size: float, compute: Sequence[float] | Array) -> Array:
        """(d, m)."""
        level = self.constant + self.size_slope * np.log(size)
        return np.asarray(
            level[:, None]
            - self._efficiency(size)[:, None] * np.log(np.asarray(compute, dtype=float))
        )


def fit_model_size(
    size: Sequence[float] | Array,
    compute: Sequence[float] | Array,
    pass_rate: Sequence[float] | Array,
) -> ModelSizeLaw:
    """The posterior from points (n,) of runs of several sizes: parameters, device-hours, pass rate.

    Raises:
        ValueError: lengths differ, fewer than 4 points, or a size or compute is not positive.
    """
    n, x, y = (np.asarray(values, dtype=float).ravel() for values in (size, compute, pass_rate))
    _check_points(n, x, y)
    # 1e-4: floor of 1 - pass rate before its logarithm is taken.
    log_loss = np.log(np.maximum(1.0 - y, 1e-4))
    # 61: values of N_0 that are tried, in equal steps of ln; chosen, not measured.
    # N_0 is searched from the smallest size divided by this to the largest size times this. Chosen,
    # not measured.
    saturation_search_factor = 30.0
    nodes = np.geomspace(n.min() / saturation_search_factor, n.max() * saturation_search_factor, 61)
    precision = np.diag(1.0 / np.array(SIZE_LAW_PRIOR_VARIANCE))
    evidence = []
    means = []
    factors = []
    scales = []
    # The posterior of a linear model with unknown noise is normal-inverse-gamma: one for each value
    # of N_0.
    shape = 0.5 * (n.size + 2.0)
    # Expected scatter of ln L about the law before any point is seen. Chosen, not measured.
    prior_log_loss_noise = 0.03
    for node in nodes:
        design = np.stack([np.ones_like(n), np.log(n), -np.log(x) / (1.0 + node / n)], axis=1)
        normal = design.T @ design + prior_log_loss_noise**2 * precision
        mean = np.linalg.solve(normal, design.T @ log_loss)
        residual = float(np.sum((log_loss - design @ mean) ** 2)) + prior_log_loss_noise**2 * float(
            mean @ precision @ mean
        )
        scale = 0.5 * (residual + 2.0 * prior_log_loss_noise**2)
        evidence.append(-0.5 * np.linalg.slogdet(normal)[1] - shape * np.log(scale))
        means.append(mean)
        factors.append(np.linalg.cholesky(np.linalg.inv(normal)))
        scales.append(scale)
    weight = np.exp(
        np.array(evidence) - max(evidence)
    )  # relative to the largest, so that exp does not overflow
    rng = np.random.default_rng(0)
    # Draws of the law across model sizes: as many as of one forecast.
    num_size_law_draws = 4096
    node = rng.choice(nodes.size, num_size_law_draws, p=weight / weight.sum())
    noise = np.sqrt(np.array(scales)[node] / rng.gamma(shape, size=num_size_law_draws))
    normal_draws = rng.standard_normal((num_size_law_draws, 3))
    linear = np.array(means)[node] + noise[:, None] * np.einsum(
        "dij,dj->di", np.array(factors)[node], normal_draws
    )
    return ModelSizeLaw(
        linear[:, 0], linear[:, 1], np.maximum(linear[:, 2], 0.0), nodes[node], noise
    )


def _check_points(size: Array, compute: Array, pass_rate: Array) -> None:
    """Raises ValueError as `fit_model_size` does."""
    if not size.size == compute.size == pass_rate.size:
        raise ValueError(
            f"points: {size.size} sizes, {compute.size} computes and {pass_rate.size} pass rates; "
            "give one of each per point."
        )
    # Points that the law across sizes needs: one more than it has linear parameters.
    min_size_law_points = 4
    if size.size < min_size_law_points:
        raise ValueError(
            f"points: {size.size} given; the law across sizes needs {min_size_law_points} or more."
        )
    if np.any(size <= 0) or np.any(compute <= 0):
        raise ValueError("points: model size and compute must be positive.")
