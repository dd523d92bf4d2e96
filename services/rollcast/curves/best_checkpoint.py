"""The best of the kept checkpoints: the one with the highest level of the pass rate."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.evaluations import CurvePoint, known_error
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.scaling.decisions.advice_words import chance_in_words
from rollcast.scaling.decisions.checkpoint_levels import CheckpointLevels, checkpoint_levels


def levels_at(evaluations: Sequence[CurvePoint], steps: Collection[int]) -> CheckpointLevels:
    """The levels of the run at `steps`, one at least. `evaluations`: one at least."""
    readings = [
        (item.step, item.pass_rate, known_error(item.standard_error)) for item in evaluations
    ]
    return checkpoint_levels(sorted(steps), readings)


def best_in_words(levels: CheckpointLevels) -> str:
    """One sentence on the best of the kept checkpoints, without its full stop."""
    best = levels.best
    mean, low, high = levels.level(best)
    level = f"level {mean:.3f} (90 % interval {low:.3f} to {high:.3f})"
    if len(levels.steps) == 1:
        return f"The only kept checkpoint is that of step {levels.steps[best]}, {level}"
    chance = chance_in_words(float(levels.chances[best]))
    return (
        f"The best of the {len(levels.steps)} kept checkpoints is that of step "
        f"{levels.steps[best]} with a chance of {chance}, {level}"
    )


@dataclass(frozen=True, eq=False)
class KeptLevels:
    """The levels of a run at its kept checkpoints.

    Attributes:
        readings: pass rate by step, of the evaluations.
    """

    kept: KeptCheckpoints
    levels: CheckpointLevels
    readings: dict[int, float]

    @classmethod
    def from_folder(cls, folder: Path) -> "KeptLevels":
        """The kept checkpoints of the run in `folder`.

        Raises UserError if there is no evaluation, or no checkpoint on this machine.
        """
        history, _, _ = history_of_folder(folder, None)
        kept = history.kept_checkpoints
        if kept is None:
            raise UserError(
                f"run folder {folder}: its checkpoints are behind the URL of trainer.checkpoints, "
                "and only those in a folder are listed; copy them into its folder checkpoints/"
            )
        if not kept.steps:
            raise UserError(
                f"run folder {folder}: holds no checkpoint yet; one is written every "
                "trainer.checkpoint_every_steps steps"
            )
        readings = {item.step: item.pass_rate for item in history.evaluations}
        return cls(kept, levels_at(history.evaluations, kept.steps), readings)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each checkpoint. `reading` is None before its evaluation."""
        levels = self.levels
        names = ("level", "low", "high")
        return [
            {"step": step, "reading": self.readings.get(step)}
            | dict(zip(names, levels.level(index), strict=True))
            | {"chance": float(levels.chances[index])}
            for index, step in enumerate(levels.steps)
        ]
