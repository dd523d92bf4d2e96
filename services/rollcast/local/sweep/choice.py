"""The next slice of a sweep: what the policy says of the arms that may run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rollcast.local.ablation import PlannedRun
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.sweep.policy import ArmOutlook, decide
from rollcast.scaling.sweep.prior import learned_sweep_prior
from rollcast.scaling.sweep.state import SweepRun, SweepState

BUDGET_SPENT = "the budget is spent"


@dataclass(frozen=True, slots=True)
class SweepTerms:
    """The rules of a sweep, in device-hours."""

    target: float
    budget: float
    slice: float
    """Share of a whole run."""
    min_slice_pauses: float
    pause_below: float
    least_gain: float
    """Pass rate."""

    def slice_share(self, pause_device_hours: float) -> float:
        """Share of a whole run that a slice lasts, given the cost of a pause and a resume."""
        least = self.min_slice_pauses * pause_device_hours / self.target
        return min(1.0, max(self.slice, least))


@dataclass(frozen=True, slots=True)
class SweepChoice:
    run: PlannedRun | None
    """The run of the next slice. None = the sweep ends."""
    goal: float
    """Compute of the run at which its slices end, in device-hours without start-ups."""
    gain: float
    slice_share: float
    arms: tuple[ArmOutlook, ...]
    """Every arm that has a run which did not fail."""
    spent: float
    """Device-hours of the whole sweep, those of the slice that goes on included."""
    reason: str = ""
    """Why the sweep ends; empty if it goes on."""

    @property
    def best(self) -> ArmOutlook | None:
        """The arm with the highest expected level; None if every run has failed."""
        return max(self.arms, key=lambda arm: arm.level, default=None)

    @property
    def chances(self) -> dict[str, float]:
        return {arm.arm: arm.chance for arm in self.arms}


def choose(
    terms: SweepTerms,
    planned: Sequence[PlannedRun],
    curves: Mapping[str, Curve],
    *,
    spent_device_hours: float,
    pause_device_hours: float,
) -> SweepChoice:
    """Refit the arms and choose the run of the next slice.

    `planned`: the runs that did not fail; `curves`: of those that have readings, by run.
    """
    share = terms.slice_share(pause_device_hours)
    left = max(0.0, terms.budget - spent_device_hours) / terms.target
    runs = [
        SweepRun.from_curve(item.variant.name, curves.get(item.config.run), terms.target)
        for item in planned
    ]
    # Else the last thousandth would be chosen again each second, its goal reached already
    runs = [replace(run, spent=1.0) if is_reached(run.spent, 1.0) else run for run in runs]
    if not runs:
        return SweepChoice(None, 0.0, 0.0, share, (), spent_device_hours, "every run has failed")
    prior = learned_sweep_prior()
    state = SweepState(runs, terms.target, left)
    decision = decide(state, prior)
    arms = decision.arms
    open_arms = unpaused_arms(arms, terms.pause_below)
    if decision.run is not None and runs[decision.run].arm not in open_arms:
        decision = decide(state, prior, open_arms)
    chosen = None
    goal = 0.0
    reason = ""
    # A pause that takes all that is left buys no reading.
    if decision.run is None or left * terms.target <= pause_device_hours:
        is_whole = all(is_reached(run.spent, 1.0) for run in runs if run.arm in open_arms)
        reason = "every arm that may run has reached the target" if is_whole else BUDGET_SPENT
    elif decision.largest_gain < terms.least_gain:
        reason = (
            f"the best further slices are expected to raise the chosen arm's level by "
            f"{decision.largest_gain:.4f}, less than {terms.least_gain:g}"
        )
    else:
        chosen = planned[decision.run]
        # One slice, also if the gain comes from several: the same run, chosen again, is not paused
        goal = min(1.0, runs[decision.run].spent + share) * terms.target
    return SweepChoice(chosen, goal, decision.gain, share, arms, spent_device_hours, reason)


def is_reached(compute: float, goal: float) -> bool:
    """Whether the goal is reached, up to rounding."""
    return compute >= 0.999 * goal


def unpaused_arms(arms: Sequence[ArmOutlook], pause_below: float) -> set[str]:
    """The arms that may run: the best one, and those whose chance is not below the bound."""
    best = max(arms, key=lambda arm: arm.level)
    bound = pause_bound(len(arms), pause_below)
    return {best.arm} | {arm.arm for arm in arms if arm.chance >= bound}


def pause_bound(num_arms: int, pause_below: float) -> float:
    """Chance below which an arm is paused: half an equal share at most, else many arms would be
    paused before their first reading.
    """
    return min(pause_below, 0.5 / max(num_arms, 1))
