"""The best split of a step, against worlds with a known truth, brute force, and repeated trials."""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.decisions.batch_choice import choose, further_run, intermediate_shapes, law_at
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.batch_shape import BatchShape, BatchShapeLaw, fit_batch_shape_law
from rollcast.scaling.law.settings import (
    BATCH_SHAPE_LAW_FLAT_STD,
    BATCH_SHAPE_LAW_PRIOR_MEAN,
    FLAT_SPLIT_SPREAD,
    PRIOR_LOG_SPREAD_STD,
)
from testkit.forecast.batch_worlds import BatchWorld
from tests.scaling.calibration import RUN_SPREAD, batch_shape_choices, make_batch_shapes


def test_the_posterior_is_that_of_weighted_draws_from_the_prior() -> None:
    batch_shapes = make_batch_shapes((8, 64), (32, 64), (32, 256))
    level = np.array([0.55, 0.60, 0.58])
    error = np.array([0.03, 0.04, 0.03])
    law = fit_batch_shape_law(batch_shapes, level.tolist(), error.tolist(), 0.0)
    rng = np.random.default_rng(5)
    count = 1_500_000
    # b_0 of the prior is so wide that hardly a draw would count: it is drawn near the readings, and
    # weighted as flat.
    b = np.array(BATCH_SHAPE_LAW_PRIOR_MEAN) + np.array(
        BATCH_SHAPE_LAW_FLAT_STD
    ) * rng.standard_normal((count, 5))
    b[:, 0] = 0.58 + 0.4 * (rng.random(count) - 0.5)
    spread = FLAT_SPLIT_SPREAD * np.exp(PRIOR_LOG_SPREAD_STD * rng.standard_normal(count))
    rollouts = np.log([batch_shape.rollouts for batch_shape in batch_shapes])
    prompts = np.log([batch_shape.prompts for batch_shape in batch_shapes])
    u = rollouts - rollouts.mean()
    v = prompts - prompts.mean()
    design = np.stack([u**0, u, u**2, v, v**2])
    deviation = np.sqrt(error[None, :] ** 2 + spread[:, None] ** 2)
    miss = (level - b @ design) / deviation
    weight = np.exp(-0.5 * np.sum(miss**2, axis=1)) / np.prod(deviation, axis=1)
    weight /= weight.sum()
    means = weight @ b
    expected = np.sqrt(weight @ (b - means) ** 2)
    assert law.coefficients.mean(axis=0) == pytest.approx(means, abs=2e-3)
    assert law.coefficients.std(axis=0) == pytest.approx(expected, rel=0.06)
    assert np.mean(law.spread) == pytest.approx(weight @ spread, rel=0.06)


@pytest.mark.parametrize(("least", "most"), [(0.5, 4.0), (4.0, 60.0)], ids=["climb", "plateau"])
def test_intervals_chances_and_losses_are_what_they_say_in_worlds_that_are_no_parabolas(
    least: float, most: float
) -> None:
    found = batch_shape_choices(least, most, num_worlds=40)
    assert 0.9 <= found.held <= 0.999
    assert found.chance == pytest.approx(found.hit, abs=0.2)
    assert 0.2 * found.expected_loss <= found.lost <= 2.0 * found.expected_loss


def test_intervals_from_curves_hold_and_the_choice_beats_both_extreme_splits() -> None:
    rng = np.random.default_rng(1)
    trained = make_batch_shapes((8, 64), (32, 64), (128, 64))
    is_held = []
    lost: dict[str, list[float]] = {"law": [], "smallest": [], "largest": []}
    for _ in range(4):
        world = BatchWorld.draw(rng)
        last = float(np.exp(rng.uniform(np.log(4), np.log(20))))
        runs = [
            (
                batch_shape,
                fit(world.curve(batch_shape, last, rng, shift=RUN_SPREAD * rng.standard_normal())),
            )
            for batch_shape in trained
        ]
        runs = [
            (batch_shape, forecast)
            for batch_shape, forecast in runs
            if forecast.verdict.kind.is_described
        ]
        budgets = [last / 2, 2 * last]
        batch_shapes = intermediate_shapes(trained)
        for law, budget in zip(law_at(runs, budgets), budgets, strict=True):
            truth = np.array(
                [float(world.pass_rate(batch_shape, budget)) for batch_shape in batch_shapes]
            )
            low, _, high = law.pass_rate(batch_shapes)
            is_held.append(np.mean((low <= truth) & (truth <= high)))
            lost["law"].append(truth.max() - truth[choose(law, batch_shapes).best])
            lost["smallest"].append(truth.max() - truth[0])
            lost["largest"].append(truth.max() - truth[-1])
    mean = {name: float(np.mean(values)) for name, values in lost.items()}
    assert np.mean(is_held) >= 0.9
    assert mean["law"] < 0.5 * min(mean["smallest"], mean["largest"])


def test_the_best_number_of_rollouts_grows_with_the_budget() -> None:
    world = BatchWorld(0.2, 0.8, 1.3, 0.12, 0.5, 0.0, 512.0, 0.7, 0.0, 0.0)
    rng = np.random.default_rng(2)
    trained = make_batch_shapes((8, 64), (32, 64), (128, 64))
    runs = [(batch_shape, fit(world.curve(batch_shape, 60.0, rng))) for batch_shape in trained]
    batch_shapes = intermediate_shapes(trained)
    budgets = [2.0, 15.0, 60.0]
    best = [batch_shapes[choose(law, batch_shapes).best].rollouts for law in law_at(runs, budgets)]
    truth = [
        max(
            batch_shapes, key=lambda batch_shape: float(world.pass_rate(batch_shape, budget))
        ).rollouts
        for budget in budgets
    ]
    assert truth == sorted(set(truth))
    assert best == sorted(set(best))
    assert np.log2(best) == pytest.approx(np.log2(truth), abs=1.0)


def test_a_further_run_is_worth_what_choices_gain_when_it_is_made() -> None:
    trained = make_batch_shapes((8, 64), (32, 64))
    level = [0.55, 0.58]
    error = [0.02, 0.02]
    law = fit_batch_shape_law(trained, level, error, 0.05)
    batch_shapes = intermediate_shapes(trained)
    found = further_run(law, batch_shapes, trained)
    before = float(law.level(batch_shapes).mean(axis=1).max())
    [of_trial] = law.level([found.batch_shape])
    rng = np.random.default_rng(3)
    best_after = []
    for draw in range(0, of_trial.size, 20):
        reading = float(of_trial[draw] + law.spread[draw] * rng.standard_normal())
        after = fit_batch_shape_law(
            [*trained, found.batch_shape], [*level, reading], [*error, 1e-4], 0.05
        )
        # The centre of the law moves with the third split; its level at a split means the same.
        best_after.append(float(after.level([*batch_shapes, found.batch_shape]).mean(axis=1).max()))
    assert found.value == pytest.approx(np.mean(best_after) - before, rel=0.25)


def test_the_missing_run_varies_what_was_not_varied() -> None:
    [only] = make_batch_shapes((8, 64))
    law = fit_batch_shape_law([only, only], [0.5, 0.51], [0.01, 0.01], 0.0)
    found = further_run(law, [only], [only])
    assert found.batch_shape == BatchShape(32, 64)
    assert found.value > 0.005
    pair = make_batch_shapes((8, 64), (32, 64))
    rising = fit_batch_shape_law(pair, [0.5, 0.6], [0.005, 0.005], 0.0)
    assert further_run(rising, intermediate_shapes(pair), pair).batch_shape == BatchShape(64, 64)
    falling = fit_batch_shape_law(pair, [0.6, 0.5], [0.005, 0.005], 0.0)
    assert further_run(falling, intermediate_shapes(pair), pair).batch_shape == BatchShape(4, 64)


def test_between_neighbors_no_setting_more_than_doubles() -> None:
    assert intermediate_shapes(make_batch_shapes((8, 64), (64, 64))) == make_batch_shapes(
        (8, 64), (16, 64), (32, 64), (64, 64)
    )
    assert intermediate_shapes(make_batch_shapes((8, 128), (32, 32))) == make_batch_shapes(
        (8, 128), (16, 64), (32, 32)
    )
    assert intermediate_shapes(make_batch_shapes((8, 64), (12, 64), (8, 64))) == make_batch_shapes(
        (8, 64), (12, 64)
    )


def test_runs_that_make_no_law_are_refused() -> None:
    [batch_shape] = make_batch_shapes((8, 64))
    with pytest.raises(ValueError, match="1 splits, 2 pass rates"):
        fit_batch_shape_law([batch_shape], [0.5, 0.5], [0.1], 0.0)
    with pytest.raises(ValueError, match="must be positive"):
        fit_batch_shape_law([batch_shape], [0.5], [0.0], 0.0)
    with pytest.raises(ValueError, match="slope: -1 is negative"):
        fit_batch_shape_law([batch_shape], [0.5], [0.1], -1.0)
    assert isinstance(fit_batch_shape_law([batch_shape], [0.5], [0.1], 0.0), BatchShapeLaw)
