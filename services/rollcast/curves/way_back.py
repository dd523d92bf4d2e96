"""The way back of a run that broke: the best kept checkpoint, and what continues the run there."""

from collections.abc import Sequence

from rollcast.curves.best_checkpoint import levels_at
from rollcast.curves.evaluations import CurvePoint
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints, kept_in_words
from rollcast.scaling.decisions.advice_words import chance_in_words


def way_back(
    evaluations: Sequence[CurvePoint], peak_compute: float, kept_checkpoints: KeptCheckpoints
) -> str:
    """One sentence. `peak_compute`: of the peak, in the unit of the evaluations."""
    # Relative error of a compute that was mapped to the fitted axis and back
    peak = max(
        (item.step for item in evaluations if item.compute <= peak_compute * (1 + 1e-9)), default=0
    )
    steps = kept_checkpoints.steps
    newest = evaluations[-1].step
    levels = levels_at(evaluations, {*steps, peak, newest})
    level_by_step = dict(zip(levels.steps, levels.mean.tolist(), strict=True))
    # A checkpoint that is later than the peak has less than half of the fall behind it.
    least = (level_by_step[peak] + level_by_step[newest]) / 2.0
    usable = [step for step in steps if step <= peak or level_by_step[step] > least]
    if not usable:
        return (
            f"No checkpoint from before that peak, near step {peak}, is there "
            f"({kept_in_words(steps)}): only another run can go back, with a "
            "larger trainer.keep_checkpoints."
        )
    kept_levels = levels.only([levels.steps.index(step) for step in usable])
    step = kept_levels.steps[kept_levels.best]
    chance = chance_in_words(float(kept_levels.chances[kept_levels.best]))
    rank = "the only one" if len(usable) == 1 else f"with a chance of {chance} the best one"
    return (
        f"Once the cause is found, go back to the checkpoint of step {step}, {rank} before the "
        f"fall from that peak, near step {peak} ({kept_in_words(steps)}): "
        f"{kept_checkpoints.way_to(step)}"
    )
