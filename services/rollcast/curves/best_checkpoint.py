"""The best of the kept checkpoints: the one with the highest level of the pass rate."""

from collections.abc import Collection, Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.evaluations import CurvePoint, known_error
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.scaling.decisions.advice_words import chance_in_words
from rollcast.scaling.decisions.checkpoint_levels import CheckpointLevels, checkpoint_levels


def levels_at(evaluations: Sequence[CurvePoint], steps: Collection[int]) -> CheckpointLevels:
    """The levels of the run at `steps`, one at least. `evaluations`: one at least."""
    readings = [
        (item.step, item.pass_rate, known_error(item.standard_error)) for item in evaluations
    ]
    return checkpoint_levels(sorted(steps), readings)


def best_in_words(levels: CheckpointLevels) -> str:
    """One sentence on the best of the kept checkpoints."""
    best = levels.best
    low, high = levels.interval()[:, best]
    level = f"level {levels.mean[best]:.3f} (90 % interval {low:.3f} to {high:.3f})"
    if len(levels.steps) == 1:
        return f"The only kept checkpoint is that of step {levels.steps[best]}, {level}"
    chance = chance_in_words(float(levels.chances[best]))
    return (
        f"The best of the {len(levels.steps)} kept checkpoints is that of step "
        f"{levels.steps[best]} with a chance of {chance}, {level}"
    )


def best_of_folder(folder: Path) -> str | None:
    """The sentence on the run in this folder; None if no checkpoint or no evaluation is there."""
    try:
        history, _, _ = history_of_folder(folder, None)
    except UserError:
        return None
    kept = history.kept_checkpoints
    if kept is None or not kept.steps:
        return None
    return best_in_words(levels_at(history.evaluations, kept.steps))
