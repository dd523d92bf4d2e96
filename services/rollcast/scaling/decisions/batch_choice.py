"""Which split of a step to train with at a fixed compute, what the choice may lose, and which run
would settle it.

A further run is worth the expected rise of the best mean that it brings (the knowledge gradient):
in the law a new reading moves the means of all splits along a line, by an amount that is normally
distributed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.batch_shape import BatchShape, BatchShapeLaw, fit_batch_shape_law
from rollcast.scaling.law.chances import best_chances
from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.settings import MIN_STANDARD_ERROR


@dataclass(frozen=True)
class BatchShapeChoice:
    """The best of some splits (k,).

    Attributes:
        best: place of the split with the highest mean pass rate.
        best_probability: (k,) of each to be the best.
        expected_loss: (k,) of each against the best, in pass rate.
    """

    best: int
    best_probability: tuple[float, ...]
    expected_loss: tuple[float, ...]


@dataclass(frozen=True)
class FurtherRun:
    """A run that is missing: its split, and the pass rate that the better choice after it gains on
    average.
    """

    batch_shape: BatchShape
    value: float


def law_at(
    runs: Sequence[tuple[BatchShape, Forecast]], compute: Sequence[float]
) -> list[BatchShapeLaw]:
    """The law across splits at each of `compute` (m,), from runs that have a forecast.

    Raises:
        ValueError: no run.
    """
    batch_shapes = [batch_shape for batch_shape, _ in runs]
    # Quantiles of a forecast from which its mean and standard deviation are taken. Chosen, not
    # measured.
    num_reached_levels = 40
    levels = (np.arange(num_reached_levels) + 0.5) / num_reached_levels
    compute_values = np.asarray(compute, dtype=float)
    # Times the compute, and divided by it, between which the slope of a curve is taken. Chosen, not
    # measured.
    slope_factor = 1.2
    probed_compute = np.concatenate(
        [compute_values, compute_values * slope_factor, compute_values / slope_factor]
    )
    # (r, 3, m, levels): without the noise of readings, since the skill of the run counts.
    drawn = np.array(
        [forecast.predictive(probed_compute, levels, standard_error=0.0).T for _, forecast in runs]
    )
    drawn = drawn.reshape(len(runs), 3, compute_values.size, num_reached_levels)
    mean = drawn.mean(axis=-1)
    error = np.maximum(drawn[:, 0].std(axis=-1), MIN_STANDARD_ERROR)
    slope = np.maximum((mean[:, 1] - mean[:, 2]) / (2.0 * math.log(slope_factor)), 0.0).mean(axis=0)
    return [
        fit_batch_shape_law(
            batch_shapes,
            mean[:, 0, compute_index].tolist(),
            error[:, compute_index].tolist(),
            float(slope[compute_index]),
        )
        for compute_index in range(compute_values.size)
    ]


def choose(law: BatchShapeLaw, batch_shapes: Sequence[BatchShape]) -> BatchShapeChoice:
    """The split to recommend, by the law at one compute."""
    level = law.level(batch_shapes)
    loss = (level.max(axis=0) - level).mean(axis=1)
    return BatchShapeChoice(
        int(level.mean(axis=1).argmax()), tuple(best_chances(level).tolist()), tuple(loss.tolist())
    )


def intermediate_shapes(trained: Iterable[BatchShape]) -> list[BatchShape]:
    """The splits trained and those between neighbors, in steps of at most a doubling; ascending."""
    ordered = sorted(set(trained))
    batch_shapes = set(ordered)
    for lower_shape, upper_shape in pairwise(ordered):
        rollouts_ratio = upper_shape.rollouts / lower_shape.rollouts
        prompts_ratio = upper_shape.prompts / lower_shape.prompts
        num_steps = math.ceil(
            max(abs(math.log2(rollouts_ratio)), abs(math.log2(prompts_ratio))) - 1e-9
        )
        for step in range(1, num_steps):
            share = step / num_steps
            batch_shapes.add(
                BatchShape(
                    round(lower_shape.rollouts * rollouts_ratio**share),
                    round(lower_shape.prompts * prompts_ratio**share),
                )
            )
    return sorted(batch_shapes)


def further_run(
    law: BatchShapeLaw, batch_shapes: Sequence[BatchShape], trained: Iterable[BatchShape]
) -> FurtherRun:
    """The run that would improve the choice among `batch_shapes` most, of those in `trained`'s
    range and beyond its ends.
    """
    trials = _trials(batch_shapes, trained)
    values = [_value(law, batch_shapes, trial) for trial in trials]
    best = int(np.argmax(values))
    return FurtherRun(trials[best], values[best])


def _trials(batch_shapes: Sequence[BatchShape], trained: Iterable[BatchShape]) -> list[BatchShape]:
    """Larger numbers come first, since the best number of rollouts grows with compute: the first of
    equals is taken.
    """
    trained_shapes = set(trained)
    factor_of_rollouts = _trial_factor({batch_shape.rollouts for batch_shape in trained_shapes})
    factor_of_prompts = _trial_factor({batch_shape.prompts for batch_shape in trained_shapes})
    trials = set(batch_shapes)
    for batch_shape in trained_shapes:
        for exponent in (-1, 1):
            rollouts = round(batch_shape.rollouts * factor_of_rollouts**exponent)
            prompts = round(batch_shape.prompts * factor_of_prompts**exponent)
            # 2: fewest rollouts of a prompt: one alone has no advantage.
            trials.add(BatchShape(max(2, rollouts), batch_shape.prompts))
            trials.add(BatchShape(batch_shape.rollouts, max(1, prompts)))
    return sorted(trials, reverse=True)


def _trial_factor(values: set[int]) -> float:
    # 4.0: times the one trained number of rollouts or prompts that a further run may have: far
    # enough for a difference to show above the spread between runs; chosen, not measured.
    # 2.0: times a trained number if there are several: one doubling beyond them is as far as a
    # parabola can be trusted.
    return 4.0 if len(values) == 1 else 2.0


def _value(law: BatchShapeLaw, batch_shapes: Sequence[BatchShape], trial: BatchShape) -> float:
    """Worth of one run of `trial` to this compute, in pass rate:
    afterwards it may be chosen too.
    """
    level = law.level([*batch_shapes, trial])
    mean = level.mean(axis=1)
    covariance = np.cov(level)[-1]
    moved: Array = covariance / math.sqrt(covariance[-1] + float(np.mean(law.spread**2)))
    # 41: outcomes of a further run over which its value is summed; chosen, not measured.
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    best_after = (mean[:, None] + moved[:, None] * nodes).max(axis=0)
    return float(best_after @ weights / weights.sum() - mean[:-1].max())
