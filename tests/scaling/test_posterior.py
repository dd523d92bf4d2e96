"""The grid posterior against dense numerical integration, and recovery of known settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve, sigmoid
from rollcast.scaling.law.observations import Observations, unit_variance
from rollcast.scaling.posterior.departure import candidates
from rollcast.scaling.posterior.draws import draw
from rollcast.scaling.posterior.grid import Axes, LinearPrior, NoisePrior, Noises, Problem, evaluate
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.placement import solve
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior
from tests.scaling.calibration import law_curve, num_laws_held


def brute_force_quantiles(
    curve: Curve, prior: Prior, noise: float, drift: float, at: float
) -> tuple[float, ...]:
    """Quantiles of A and of R(at) by summing likelihood times prior over a 4-D lattice, with a full
    covariance.
    """
    log_compute = np.log(curve.compute)
    spread = np.sqrt(unit_variance(curve))
    distance = (
        np.abs(curve.compute[:, None] - curve.compute) / curve.compute[-1] / prior.drift_length
    )
    covariance = (
        noise**2 * np.outer(spread, spread) * (np.eye(len(curve)) + drift**2 * np.exp(-distance))
    )
    inverse = np.linalg.inv(covariance)
    initial = np.linspace(0, 1, 61)[:, None]
    asymptote = np.linspace(0, 1, 81)
    log_weight, pass_rate = [], []
    inside = (initial < asymptote) & (initial >= 0)
    linear = -0.5 * ((initial - prior.initial[0]) / prior.initial[1]) ** 2
    linear = linear - 0.5 * ((asymptote - prior.asymptote[0]) / prior.asymptote[1]) ** 2
    for log_exponent in prior.log_exponent[0] + prior.log_exponent[1] * np.linspace(-5, 5, 27):
        for log_midpoint in (
            log_compute[-1] + prior.log_midpoint[0] + prior.log_midpoint[1] * np.linspace(-3, 3, 31)
        ):
            law = sigmoid(
                curve.compute,
                initial[..., None],
                asymptote[:, None],
                np.exp(log_exponent),
                np.exp(log_midpoint),
            )
            residual = curve.pass_rate - law
            log_likelihood = -0.5 * np.einsum(
                "abi,ij,abj->ab", residual, inverse, residual, optimize=True
            )
            log_prior = scipy.stats.t.logpdf(log_exponent, 4, *prior.log_exponent)
            log_prior -= (
                0.5
                * ((log_midpoint - log_compute[-1] - prior.log_midpoint[0]) / prior.log_midpoint[1])
                ** 2
            )
            log_weight.append(np.where(inside, log_likelihood + linear + log_prior, -np.inf))
            pass_rate.append(
                sigmoid(at, initial, asymptote, np.exp(log_exponent), np.exp(log_midpoint))
            )
    weight = np.exp(np.array(log_weight) - np.max(log_weight))
    answers: list[float] = []
    for values in (np.broadcast_to(asymptote, weight.shape), np.array(pass_rate)):
        order = np.argsort(values, axis=None)
        cumulative = np.cumsum(weight.ravel()[order])
        positions = np.searchsorted(cumulative / cumulative[-1], [0.05, 0.5, 0.95])
        answers.extend(float(v) for v in values.ravel()[order][positions])
    return tuple(answers)


@pytest.mark.parametrize("stop", [0.7, 3.0])
def test_posterior_matches_dense_integration(stop: float) -> None:
    curve = law_curve(seed=3, count=8, noise=0.03, stop=stop)
    prior = replace(
        DEFAULT_PRIOR,
        stack=None,  # the law's own A
        log_noise=(float(np.log(0.03 * np.hypot(1, 0.4))), 1e-4),
        drift=(0.4,),
        drift_weight=(1.0,),
        initial=(0.3, 0.2),
        tail_weight=0.0,
    )
    forecast = fit(curve, FitOptions(prior=prior, exclude_before=0.0, robust=False))
    expected = brute_force_quantiles(curve, prior, 0.03, 0.4, at=2 * stop)
    found = [*forecast.asymptote(), *forecast.pass_rate([2 * stop])[:, 0]]
    assert found == pytest.approx(expected, abs=0.02)


def test_known_settings_are_recovered() -> None:
    forecast = fit(law_curve(seed=0, count=200, noise=0.003, stop=10.0))
    assert forecast.asymptote([0.5])[0] == pytest.approx(0.7, abs=0.01)
    assert forecast.exponent([0.5])[0] == pytest.approx(1.7, abs=0.15)
    assert forecast.midpoint([0.5])[0] == pytest.approx(1.0, rel=0.05)
    assert forecast.initial([0.5])[0] == pytest.approx(0.2, abs=0.02)
    assert forecast.best.asymptote == pytest.approx(0.7, abs=0.01)


def test_intervals_cover_at_about_their_rate() -> None:
    assert num_laws_held(20) >= 16


def test_a_measured_start_narrows_the_initial_rate() -> None:
    curve = law_curve(seed=1, count=10, noise=0.02)
    measured = Curve.from_points(np.r_[0, curve.compute], np.r_[0.2, curve.pass_rate])
    whole = FitOptions(exclude_before=0.0)
    free, told = fit(curve, whole).initial([0.05, 0.95]), fit(measured, whole).initial([0.05, 0.95])
    assert told[1] - told[0] < 0.5 * (free[1] - free[0])
    assert fit(curve, FitOptions(initial=0.25)).initial() == pytest.approx([0.25] * 3, abs=1e-3)


def test_a_start_off_the_law_is_found_to_be_a_transient() -> None:
    compute = np.linspace(0.05, 3.0, 60)
    truth = float(sigmoid(9.0, 0.2, 0.7, 1.7, 1.0))
    errors = []
    for seed in range(6):
        law = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + 0.002 * np.random.default_rng(
            seed
        ).standard_normal(60)
        curve = Curve.from_points(
            np.r_[0, compute], np.r_[0.28, law + 0.08 * np.maximum(1 - compute / 0.36, 0)]
        )
        found, forced = fit(curve), fit(curve, FitOptions(exclude_before=0.0))
        assert found.excluded == pytest.approx(7, abs=3)
        assert forced.excluded == 0
        errors.append(
            [abs(forecast.pass_rate([9.0], [0.5])[0, 0] - truth) for forecast in (found, forced)]
        )
    automatic, none = np.mean(errors, axis=0)
    assert automatic < 0.6 * none


def test_an_outlier_hardly_moves_a_robust_fit() -> None:
    curve = law_curve(seed=2)
    bad = curve.pass_rate.copy()
    bad[40] = 0.1
    spoiled = Curve.from_points(curve.compute, bad)
    assert fit(spoiled).asymptote([0.5])[0] == pytest.approx(
        fit(curve).asymptote([0.5])[0], abs=0.01
    )


def test_points_before_the_cut_are_left_out_and_counted() -> None:
    forecast = fit(law_curve(seed=0), FitOptions(exclude_before=1.0))
    assert forecast.excluded == int(np.sum(forecast.curve.compute < 1.0))
    with pytest.raises(ValueError, match="no point between"):
        fit(law_curve(seed=0), FitOptions(exclude_before=100.0))


@settings(max_examples=25)
@given(
    points=st.lists(st.tuples(st.floats(1e-12, 1e12), st.floats(0, 1)), min_size=1, max_size=30),
    error=st.one_of(st.none(), st.floats(1e-9, 1.0)),
)
def test_any_curve_gives_finite_ordered_answers(
    points: list[tuple[float, float]], error: float | None
) -> None:
    compute, pass_rate = zip(*points, strict=True)
    curve = Curve.from_points(compute, pass_rate, None if error is None else [error] * len(points))
    forecast = fit(curve)
    last = float(curve.compute[-1])
    for answer in (
        forecast.asymptote(),
        forecast.initial(),
        forecast.pass_rate([last, 10 * last]).T.ravel()[:3],
        forecast.predictive([2 * last])[:, 0],
    ):
        assert np.all(np.isfinite(answer))
        assert np.all((answer >= 0) & (answer <= 1))
        assert np.all(np.diff(answer) >= 0)
    rising = fit(forecast.curve, FitOptions(prior=LAW_PRIOR)).pass_rate(
        np.geomspace(last / 10, 10 * last, 7)
    )
    assert np.all(np.diff(rising, axis=1) >= -1e-12)
    assert forecast.verdict.reason


@pytest.mark.parametrize("error", [None, 0.0, 1e-3, 0.02])
@pytest.mark.parametrize("num_points", [5, 20, 200])
@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_readings_that_repeat_to_the_last_digit(
    level: float, num_points: int, error: float | None
) -> None:
    """Small test sets read the same for long; nothing then tells the noise but that arithmetic
    ends.
    """
    compute = np.linspace(2.0, 2.0 * num_points, num_points)
    errors = None if error is None else [error] * num_points
    forecast = fit(Curve.from_points(compute, [level] * num_points, errors))
    assert forecast.pass_rate([compute[-1]])[1, 0] == pytest.approx(level, abs=0.01)
    if level == 1.0:
        assert forecast.verdict.kind is VerdictKind.SATURATED
        # What a grid many times as fine says: 0.986 where five readings are told to be off by 0.02.
        assert forecast.asymptote()[0] > (0.986 if (num_points, error) == (5, 0.02) else 0.99)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_grid_holds_the_posteriors_of_all_departures(seed: int) -> None:
    """Against a dense grid over everything plausible: no departure may be cut off by where the grid
    is placed.
    """
    prior = DEFAULT_PRIOR
    compute = np.linspace(0.005, 0.3, 60)
    law = sigmoid(compute, 0.3, 0.7, 1.7, 1.0) - 0.06 * np.maximum(1 - compute / 0.13, 0)
    pass_rate = law + 0.006 * np.random.default_rng(seed).standard_normal(60)
    curve = Curve.from_points(np.r_[0, compute], np.r_[0.24, pass_rate], [0.006] * 61)
    points = Observations.from_curve(curve, prior.drift_length, None, has_measured_initial=True)
    linear = LinearPrior(mean=np.array([0.3, 0.63]), variance=np.array([0.16, 0.08]))
    found = candidates(points, prior, [0.002, *(0.3 * np.array(prior.start_transient))])
    noise_prior = NoisePrior(prior.log_error_scale, prior.log_drifting_error_scale)
    problem = Problem(points, prior, linear, noise_prior)
    placed = solve(problem, found)
    reach = np.linspace(-3.5, 3.5, 161)
    exponents = prior.log_exponent[0] + prior.log_exponent[1] * reach[::5]
    midpoints = points.log_compute[-1] + prior.log_midpoint[0] + prior.log_midpoint[1] * reach
    whole = replace(
        placed.axes,
        departures=tuple(found),
        log_exponent=exponents,
        log_midpoint=np.tile(midpoints, (exponents.size, 1)),
    )
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    dense, found_ = (
        draw(grid, points, prior.tail_falls) for grid in (evaluate(problem, whole), placed)
    )
    for at, tolerance in ((0.6, 0.015), (1.2, 0.04)):  # what 16 x 32 nodes tell of a tail's end
        expected = np.quantile(dense.law([at])[0], quantiles)
        assert np.quantile(found_.law([at])[0], quantiles) == pytest.approx(expected, abs=tolerance)
    assert (found_.tail == 0).mean() == pytest.approx((dense.tail == 0).mean(), abs=0.08)


def test_every_departure_weighs_what_a_full_covariance_says() -> None:
    """Weights and means with and without first phase and tail, against the multivariate normal
    density.
    """
    compute = np.linspace(0.1, 4.0, 30)
    law = sigmoid(compute, 0.3, 0.7, 1.7, 1.0) + 0.02 * np.maximum(1 - compute / 0.8, 0)
    curve = Curve.from_points(
        compute, law + 0.01 * np.random.default_rng(0).standard_normal(30), [0.01] * 30
    )
    prior = replace(DEFAULT_PRIOR, drift=(0.0, 0.8), drift_weight=(0.5, 0.5))
    points = Observations.from_curve(curve, prior.drift_length, None, has_measured_initial=False)
    linear = LinearPrior(mean=np.array([0.3, 0.6]), variance=np.array([0.1, 0.05]))
    prior = replace(prior, tail_onset=(0.3,), tail_scale=(0.02,), tail_weight=0.4)
    found = candidates(points, prior, [0.4, 0.8])
    assert len(found) == 2 * (1 + 2 + 1), "no large jump as late as 0.8"
    axes = Axes(
        departures=tuple(found),
        noises=Noises(np.array([0.0, -0.25]), np.array(prior.drift), np.zeros(2), cell=1.0),
        log_exponent=prior.log_exponent[0] + np.array([-0.1, 0.1]),
        log_midpoint=points.log_compute[-1]
        + prior.log_midpoint[0]
        + np.array([[-0.9, -0.8], [-0.9, -0.8]]),
    )
    grid = evaluate(
        Problem(points, prior, linear, NoisePrior(prior.log_noise, prior.log_noise)), axes
    )
    distance = np.abs(compute[:, None] - compute) / compute[-1] / prior.drift_length
    drift = np.outer(points.spread, points.spread) * np.exp(-distance)
    log_weight = np.empty(grid.weight.shape)
    for h, j, b, m in np.ndindex(grid.weight.shape):
        covariance = np.exp(2 * axes.noises.log_scale[j]) * (
            np.diag(1 / points.precision) + axes.noises.drift[j] ** 2 * drift
        )
        at, scale, tail = found[h].at, found[h].scale, found[h].tail
        compute_ = np.exp(points.log_compute)
        if at > 0:
            shape = np.maximum(1 - compute_ / at, 0)
            covariance = covariance + scale**2 * np.outer(shape, shape)
        if tail is not None:
            assert (tail.scale, tail.onset) == (0.02, pytest.approx(0.3 * compute_[-1]))
            shape = np.log(1 + compute_ / tail.onset)
            covariance = covariance + tail.scale**2 * np.outer(shape, shape)
        rise = sigmoid(
            np.exp(points.log_compute),
            0,
            1,
            np.exp(axes.log_exponent[b]),
            np.exp(axes.log_midpoint[b, m]),
        )
        design = np.stack([1 - rise, rise], axis=1)
        spread = covariance + design @ np.diag(linear.variance) @ design.T
        log_weight[h, j, b, m] = scipy.stats.multivariate_normal.logpdf(
            points.pass_rate, design @ linear.mean, spread
        )
        log_weight[h, j, b, m] += scipy.stats.t.logpdf(axes.log_exponent[b], 4, *prior.log_exponent)
        distant = (
            axes.log_midpoint[b, m] - points.log_compute[-1] - prior.log_midpoint[0]
        ) / prior.log_midpoint[1]
        log_weight[h, j, b, m] -= 0.5 * distant**2
        shorter = scipy.stats.norm.cdf(
            np.log(np.sqrt(0.4 * 0.8)),
            axes.log_midpoint[b, m] + prior.first_phase[0],
            prior.first_phase[1],
        )
        ending = {0.0: 1 - prior.transient_weight, 0.4: shorter, 0.8: 1 - shorter}[at]
        large = scale == prior.jump_scale
        size = (
            prior.transient_weight * (prior.jump_weight if large else 1 - prior.jump_weight)
            if at > 0
            else 1.0
        )
        log_weight[h, j, b, m] += np.log(ending * size * (0.6 if tail is None else 0.4))
        gain = np.diag(linear.variance) @ design.T @ np.linalg.inv(spread)
        mean = linear.mean + gain @ (points.pass_rate - design @ linear.mean)
        given = grid.conditional(np.ravel_multi_index([[h], [j], [b], [m]], grid.weight.shape))
        assert [*given.initial, *given.asymptote] == pytest.approx(mean, abs=1e-6)
    expected = np.exp(log_weight - log_weight.max())
    assert grid.weight == pytest.approx(expected / expected.sum(), rel=0.01)


def test_less_scatter_than_the_errors_say_speaks_for_drift() -> None:
    """Errors a quarter too large mean that evaluations share their prompts."""
    shares = []
    for factor in (1.0, 1.25):
        share = 0.0
        for seed in range(5):
            free = law_curve(seed, noise=0.01)
            curve = Curve.from_points(free.compute, free.pass_rate, [0.01 * factor] * len(free))
            share += float(np.mean(fit(curve).draws.drift > 0)) / 5
        shares.append(share)
    assert shares[0] < 0.35
    assert shares[1] > shares[0] + 0.1
