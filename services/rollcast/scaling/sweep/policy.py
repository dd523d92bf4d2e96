"""The next slice of a sweep is given to the run that is expected to improve the choice most.

Knowledge gradient (Frazier, Powell, Dayanik 2009, https://doi.org/10.1287/ijoc.1080.0314): after
further slices of a run the means of all arms shift, by amounts whose distribution is known before.
The expected maximum then, less the maximum now, is what the slices are worth. One slice may never
change a choice that eight would, so several lengths are looked at, each by its gain per slice.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from rollcast.scaling.law.chances import best_chances
from rollcast.scaling.law.curve import Array
from rollcast.scaling.sweep.belief import SweepBelief
from rollcast.scaling.sweep.prior import SweepPrior
from rollcast.scaling.sweep.state import NUM_BINS, SweepState

HORIZONS = (1, 2, 4, 8, 20)
"""Lengths that are looked at, in twentieths of the target."""


@dataclass(frozen=True, slots=True)
class ArmOutlook:
    """One arm at the target."""

    arm: str
    level: float
    low: float
    """Lower end of the 90 % band of the level."""
    high: float
    chance: float
    """Probability that no other arm has a higher level."""


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """The arms as they are seen now, and the run that goes on."""

    arms: tuple[ArmOutlook, ...]
    run: int | None
    """Index into the runs of the state; None: no run can go on within the budget."""
    share: float
    """Compute over the target that the run is to be given before the gain is had, 0 without a
    run."""
    gain: float
    """Pass rate: expected gain of the chosen arm's level from it."""
    largest_gain: float
    """The largest gain of any further slices of one run, which may be longer and gain less for
    their compute."""

    @property
    def best(self) -> ArmOutlook:
        """The arm with the highest expected level; of several at 1 the likeliest to be it."""
        return max(self.arms, key=lambda outlook: (outlook.level, outlook.chance))


def decide(
    state: SweepState, prior: SweepPrior, may_run: Collection[str] | None = None
) -> SweepDecision:
    """The outlook of every arm, and the most valuable next slices of the arms that may run; None =
    of all. Deterministic.
    """
    belief = SweepBelief(state, prior)
    # A chance has a standard error of 0.005 at most.
    draws = belief.draws(10_000)
    chance = best_chances(draws.T)
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    # A Gaussian process knows no bounds.
    level, low, high = np.clip((belief.mean, low, high), 0.0, 1.0)
    columns = zip(belief.arms, level, low, high, chance, strict=True)
    arms = tuple(ArmOutlook(arm, *map(float, numbers)) for arm, *numbers in columns)
    plans = list(_plans(state, belief, belief.arms if may_run is None else may_run))
    if not plans:
        return SweepDecision(arms, run=None, share=0.0, gain=0.0, largest_gain=0.0)
    _, _, run, num_bins, gain = max(plans)
    largest_gain = max(plan_gain for *_, plan_gain in plans)
    return SweepDecision(arms, -run, num_bins / NUM_BINS, gain, largest_gain)


def _plans(
    state: SweepState, belief: SweepBelief, may_run: Collection[str]
) -> Iterator[tuple[float, float, int, int, float]]:
    """Gain for each bin, level of the arm, minus the run, bins, gain: the largest is the best.

    Without any gain the arm with the highest level goes on; of equal ones the first run.
    """
    affordable = int(state.budget * NUM_BINS + 1e-6)
    levels = dict(zip(belief.arms, belief.mean, strict=True))
    normal = _normal_draws()
    for index, run in enumerate(state.runs):
        if run.arm not in may_run:
            continue
        first = min(int(run.spent * NUM_BINS + 1e-6), NUM_BINS)
        max_bins = min(NUM_BINS - first, affordable)
        for num_bins in sorted({min(horizon, max_bins) for horizon in HORIZONS} - {0}):
            shifts = belief.shifts(index, range(first, first + num_bins))
            later = (belief.mean + normal[:, :num_bins] @ shifts).max(axis=1).mean()
            gain = max(float(later - belief.mean.max()), 0.0)
            # A difference below 1e-9 comes from rounding.
            per_bin = round(gain / num_bins, 9)
            yield per_bin, float(levels[run.arm]), -index, num_bins, gain


@cache
def _normal_draws() -> Array:
    """(512, 20), the same for every candidate, so that their differences scatter little."""
    half = np.random.default_rng(0).standard_normal((256, NUM_BINS))
    return np.concatenate([half, -half])
