"""What intervals and verdicts are worth on many simulated runs, by the number of runs.

Few of them are asked for by the tests of each part, all of them by the proof (test_calibration.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.decisions.batch_choice import choose, intermediate_shapes
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.leave_one_out import LeaveOneOut, leave_one_out
from rollcast.scaling.decisions.repeats import Repeats
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.batch_shape import BatchShape, fit_batch_shape_law
from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, Prior
from testkit.forecast.batch_worlds import BatchWorld
from testkit.forecast.generators import simulate
from testkit.forecast.other_shapes import draw_run
from testkit.forecast.verdicts import BROKEN

RUN_SPREAD = 0.01
DESIGNS = (
    ((8, 64), (32, 64)),
    ((16, 32), (16, 128)),
    ((8, 128), (32, 32)),
    ((8, 64), (32, 64), (128, 64)),
    ((8, 128), (32, 32), (64, 16)),
    ((8, 64), (32, 64), (128, 64), (8, 256), (32, 256), (128, 16)),
)


def law_curve(seed: int, count: int = 60, noise: float = 0.005, stop: float = 5.0) -> Curve:
    compute = np.linspace(stop / count, stop, count)
    pass_rate = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + noise * np.random.default_rng(
        seed
    ).standard_normal(count)
    return Curve.from_points(compute, pass_rate.clip(0, 1))


def num_laws_held(num_runs: int) -> int:
    """How many 90 % intervals of the law at 4, fitted until 1.5, hold it."""
    held = 0
    for seed in range(num_runs):
        low, high = fit(law_curve(seed, count=20, noise=0.02, stop=1.5)).pass_rate(
            [4.0], (0.05, 0.95)
        )[:, 0]
        held += bool(low <= sigmoid(4.0, 0.2, 0.7, 1.7, 1.0) <= high)
    return held


def headrooms_of_drifting_runs(num_runs: int, prior: Prior) -> tuple[float, float]:
    """Share of the 90 % intervals of the headroom that hold it, and their mean width."""
    rng = np.random.default_rng(0)
    runs = [simulate("heavy", 3.0, rng) for _ in range(num_runs)]
    bounds = np.array(
        [fit(run.curve, FitOptions(prior=prior)).headroom((0.05, 0.95)) for run in runs]
    )
    truth = np.array(
        [run.truth.asymptote - run.truth.pass_rate([run.curve.compute[-1]])[0] for run in runs]
    )
    held = np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
    return float(held), float(np.mean(bounds[:, 1] - bounds[:, 0]))


WITHOUT_DRIFT = replace(DEFAULT_PRIOR, drift=(0.0,), drift_weight=(1.0,), error_drift_weight=(1.0,))


def later_missed(generator: str, window: float, num_runs: int) -> list[bool]:
    """For each simulated run that is called forecastable or saturated: does the 90 % interval at
    twice the compute miss the law there?
    """
    rng = np.random.default_rng([41, int(10 * window)])
    missed = []
    for _ in range(num_runs):
        simulated = simulate(generator, window, rng)
        forecast = fit(simulated.curve)
        if forecast.verdict.kind in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED):
            at = 2 * float(simulated.curve.compute[-1])
            low, high = forecast.predictive([at], (0.05, 0.95))[:, 0]
            missed.append(not low <= float(simulated.truth.pass_rate([at])[0]) <= high)
    return missed


def num_good_runs_accused(num_runs: int) -> int:
    """Of a break, of runs of the law."""
    compute = np.linspace(0.1, 6.0, 60)
    law = sigmoid(compute, 0.2, 0.7, 1.7, 1.0)
    readings = (
        law + 0.01 * np.random.default_rng(seed).standard_normal(60) for seed in range(num_runs)
    )
    return sum(fit(Curve.from_points(compute, rates)).verdict.kind in BROKEN for rates in readings)


def num_first_phases_accused(num_runs: int) -> int:
    """Of a break, of runs whose first phase is above the law."""
    rng = np.random.default_rng(47)
    return sum(
        fit(simulate("early", 0.3, rng).curve).verdict.kind in BROKEN for _ in range(num_runs)
    )


def shares_held(kind: str, num_runs: int, prior: Prior = DEFAULT_PRIOR) -> tuple[float, float]:
    """Of the runs of another kind, how many the 90 % intervals hold at twice the compute and at ten
    times.
    """
    held = []
    for seed in range(num_runs):
        run = draw_run(kind, seed)
        forecast = fit(
            Curve.from_points(run.compute, run.pass_rate, unit="steps"), FitOptions(prior=prior)
        )
        for at in (2.0, 10.0):
            low, high = forecast.predictive([at], (0.05, 0.95), standard_error=0.0)[:, 0]
            held.append(low <= run.truth(at) <= high)
    return float(np.mean(held[::2])), float(np.mean(held[1::2]))


# Leave-one-out at the size of the demo: 33 evaluations of 160 prompts x 4, a start of 0.24, an
# asymptote of 0.9.

COMPUTE = np.linspace(0.0, 0.17, 33)
WHOLE = SigmoidParameters(0.24, 0.9, 2.0, 0.065)
SAMPLES = 160 * 4


def demo_curve(
    law: SigmoidParameters, rng: np.random.Generator, asymptote_spread: float = 0.01
) -> Curve:
    """One run: its own asymptote and pace, and evaluations that are coins."""
    mine = SigmoidParameters(
        law.initial,
        law.asymptote + asymptote_spread * rng.standard_normal(),
        law.exponent,
        law.midpoint * float(np.exp(0.02 * rng.standard_normal())),
    )
    rate = rng.binomial(SAMPLES, mine.pass_rate(COMPUTE)) / SAMPLES
    return Curve.from_points(COMPUTE, rate, np.sqrt(rate * (1 - rate) / SAMPLES))


def table(
    seed: int, num_runs: int, *laws: SigmoidParameters, asymptote_spread: float = 0.01
) -> LeaveOneOut:
    rng = np.random.default_rng(seed)
    recipes = [
        Repeats.from_curves(
            f"recipe {place}", [demo_curve(law, rng, asymptote_spread) for _ in range(num_runs)]
        )
        for place, law in enumerate((WHOLE, *laws))
    ]
    return leave_one_out(recipes[0], recipes[1:])


def make_batch_shapes(*pairs: tuple[int, int]) -> list[BatchShape]:
    return [BatchShape(*pair) for pair in pairs]


@dataclass(frozen=True)
class BatchShapeChoices:
    """Means over simulated worlds."""

    held: float
    """Share of splits whose run lies in its interval."""
    hit: float
    """How often the chosen split is the best."""
    chance: float
    """How often it says so."""
    lost: float
    """Pass rate that the choice gives away."""
    expected_loss: float
    """What it says of that."""


def batch_shape_choices(least: float, most: float, num_worlds: int) -> BatchShapeChoices:
    """In worlds that are no parabolas, after a compute between `least` and `most`."""
    rng = np.random.default_rng(0)
    rows: list[Array] = []
    for _ in range(num_worlds):
        world = BatchWorld.draw(rng)
        trained = make_batch_shapes(*DESIGNS[rng.integers(len(DESIGNS))])
        compute = float(np.exp(rng.uniform(np.log(least), np.log(most))))
        error = rng.choice([0.003, 0.01, 0.04], len(trained))
        noise = np.sqrt(RUN_SPREAD**2 + error**2) * rng.standard_normal(len(trained))
        level = [float(world.pass_rate(batch_shape, compute)) for batch_shape in trained]
        law = fit_batch_shape_law(
            trained, (level + noise).tolist(), error.tolist(), world.slope(trained, compute)
        )
        batch_shapes = intermediate_shapes(trained)
        truth = np.array(
            [float(world.pass_rate(batch_shape, compute)) for batch_shape in batch_shapes]
        )
        low, _, high = law.pass_rate(batch_shapes)
        run = truth + RUN_SPREAD * rng.standard_normal(truth.size)
        choice = choose(law, batch_shapes)
        best = choice.best
        held = np.mean((low <= run) & (run <= high))
        hit = truth[best] == truth.max()
        lost = truth.max() - truth[best]
        rows.append(
            np.array([held, hit, choice.best_probability[best], lost, choice.expected_loss[best]])
        )
    return BatchShapeChoices(*np.mean(rows, axis=0).tolist())
