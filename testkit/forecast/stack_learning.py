"""The stack that makes the outcomes of some examples likeliest."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from rollcast.scaling.law.curve import Array
from rollcast.scaling.outlook.settings import MIN_WIDTH
from rollcast.scaling.posterior.stack import NUM_METHODS, Stack
from testkit.forecast.stack_examples import Examples

USUAL_SCALE = np.array([0.0, 0.6, 0.0])
"""Coefficients of ln s towards which they are shrunk, the first one left free: s in proportion to
W^0.6."""
START_SCALE = -2.0
LEAST_DEGREES = 1.5
USUAL_LOG_DEGREES = np.log(2.5)
"""ln(degrees of freedom - LEAST_DEGREES) towards which that is shrunk."""
USUAL_TAKE_OFF = (1.0, 9.0)
"""Runs that took off and runs that did not, which the prior counts as seen besides those of the
examples."""
DIGITS = 4


def learn(examples: Examples) -> Stack:
    """The stack of `examples`.

    One repository has one vote, shared by its cells of metric and share of the curve.
    """
    vote = votes(examples)
    start = np.concatenate(
        [np.zeros(NUM_METHODS), [START_SCALE, 0.6, 0.0], [0.0, 0.0], [USUAL_LOG_DEGREES]]
    )
    minimum = minimize(_loss, start, args=(examples, vote), method="L-BFGS-B")
    logits, scale, side, log_degrees = _parts(minimum.x)
    weights = _softmax(logits).round(DIGITS)
    weights[-1] += 1.0 - weights.sum()
    return Stack(
        weights=tuple(weights.round(DIGITS).tolist()),
        scale=tuple(scale.round(DIGITS).tolist()),
        side=tuple(side.round(DIGITS).tolist()),
        degrees=round(float(LEAST_DEGREES + np.exp(log_degrees)), DIGITS),
        persistence=round(_persistence(examples, vote, minimum.x), DIGITS),
        late_take_off=round(_late_take_off(examples, vote), DIGITS),
    )


def votes(examples: Examples) -> Array:
    """(e,) weights that add up to 1: one repository one vote, shared by its cells, those by their
    examples.
    """
    weight = np.zeros(examples.share.size)
    for repository in np.unique(examples.repository):
        of_repository = examples.repository == repository
        cells = {
            (metric, share) for metric, share in zip(examples.metric, examples.share, strict=True)
        }
        repository_cells = []
        for metric, share in sorted(cells):
            cell = of_repository & (examples.metric == metric) & (examples.share == share)
            if cell.any():
                repository_cells.append(cell)
        for cell in repository_cells:
            weight[cell] += 1.0 / (len(repository_cells) * cell.sum())
    return np.asarray(weight / weight.sum())


def _parts(parameters: Array) -> tuple[Array, Array, Array, float]:
    """Logits of the weights (7,), scale (3,), side (2,), ln(degrees - LEAST_DEGREES)."""
    logits, scale, side, log_degrees = np.split(
        parameters, [NUM_METHODS, NUM_METHODS + 3, NUM_METHODS + 5]
    )
    return logits, scale, side, float(log_degrees[0])


def _softmax(logits: Array) -> Array:
    weight = np.exp(logits - logits.max())
    return np.asarray(weight / weight.sum())


def _loss(parameters: Array, examples: Examples, vote: Array) -> float:
    """Mean negative log likelihood of the outcomes under the simple methods alone,
    and the penalty.
    """
    logits, scale, side, log_degrees = _parts(parameters)
    degrees = LEAST_DEGREES + np.exp(log_degrees)
    normed, width = _normalise_outcomes(parameters, examples)
    constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * np.log(degrees * np.pi)
    density = constant - 0.5 * (degrees + 1) * np.log1p(normed**2 / degrees) - np.log(width)
    centred = logits - logits.mean()
    penalty = (
        0.1 * np.sum(centred**2)
        + np.sum((scale - USUAL_SCALE)[1:] ** 2)
        + np.sum(side**2)
        + (log_degrees - USUAL_LOG_DEGREES) ** 2
    )
    # Penalty on the squares of the coefficients, in nats of the mean likelihood: half or twice as
    # much changes nothing
    return float(-vote @ density + 0.05 * penalty)


def _normalise_outcomes(parameters: Array, examples: Examples) -> tuple[Array, Array]:
    """Outcomes in units of the scale on their side of the centre, and the mean of the two scales:
    (e,) each.
    """
    logits, scale, side, _ = _parts(parameters)
    centre = examples.forecasts @ _softmax(logits)
    spread = np.exp(examples.scale_terms @ scale) + MIN_WIDTH
    tilt = np.tanh(examples.side_terms @ side)
    up, down = spread * np.exp(tilt), spread * np.exp(-tilt)
    beyond = examples.outcome - centre
    return beyond / np.where(beyond > 0, up, down), 0.5 * (up + down)


def _persistence(examples: Examples, vote: Array, parameters: Array) -> float:
    """The power of u_1 / u_2 that describes best how the outcomes of one cut keep to one side."""
    normed, _ = _normalise_outcomes(parameters, examples)
    bounded = np.clip(normed, -3.0, 3.0) / np.sqrt(vote @ np.clip(normed, -3.0, 3.0) ** 2)
    pairs = [
        (first, second)
        for first in range(normed.size)
        for second in range(first + 1, min(first + 4, normed.size))
        if examples.cut[first] == examples.cut[second]
    ]
    first, second = np.array(pairs).T
    ratio = examples.ahead[first] / examples.ahead[second]
    product = bounded[first] * bounded[second]
    powers = np.linspace(0.05, 2.0, 40)
    errors = [vote[first] @ (product - ratio**power) ** 2 for power in powers]
    return float(powers[int(np.argmin(errors))])


def _late_take_off(examples: Examples, vote: Array) -> float:
    """Share of the cuts whose level has not moved that had gained at the end;
    the prior counted in.
    """
    last = np.append(np.diff(examples.cut) != 0, True)
    final_unmoved = examples.not_moved & last
    of_repository = {}
    for repository in np.unique(examples.repository[final_unmoved]):
        in_repository = final_unmoved & (examples.repository == repository)
        of_repository[repository] = float(np.mean(examples.took_off[in_repository]))
    took_off, did_not = USUAL_TAKE_OFF
    return (took_off + sum(of_repository.values())) / (took_off + did_not + len(of_repository))
