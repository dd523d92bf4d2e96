"""The sweep file: which arms compete for one budget, and the rules by which it is spent."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from rollcast.config.base import RUN_NAME, Settings
from rollcast.config.errors import UserError
from rollcast.config.run import MAX_NAMED_MISTAKES, load_settings
from rollcast.config.sentences import find_mistakes
from rollcast.config.services import Local


class NamedArm(Settings):
    """One recipe of a sweep: settings put over the base's run file."""

    name: Annotated[str, Field(pattern=RUN_NAME)]
    """Name of the arm, part of its runs' names."""
    settings: dict[str, Any]
    """Settings as a run file nests them, or dotted: `recipe.optimizer.learning_rate: 1.0e-5`. A
    mapping with a `kind` replaces the base's. `run`, `folder`, `seed`, `budget` and `stop_when` are
    the sweep's."""


class SweepBudget(Settings):
    """The compute of all runs together, with that of their starts, stops and lost work."""

    device_hours: Annotated[float, Field(gt=0)] | None = None
    """GPU-hours, or core-hours on a CPU."""
    runs: Annotated[float, Field(gt=0)] | None = None
    """Number of whole runs, each of `target_device_hours`, that cost as much."""


class SweepFile(Settings):
    """Everything in a sweep file. At least two arms, from `arms`, `grid` and `recipes` together."""

    sweep: Annotated[str, Field(pattern=RUN_NAME)]
    """Name of the sweep: the beginning of its runs' names, and its folder's."""
    base: Path
    """Run file that every arm changes. A relative path counts from the sweep file's folder."""
    folder: Path | None = None
    """Folder of the sweep, with a folder for each run. None = the sweep's name in the `folder` of
    the run file."""
    arms: tuple[NamedArm, ...] = ()
    """Arms by name."""
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Dotted setting of a run file -> its values. Every combination is an arm, named after its
    values."""
    recipes: tuple[str, ...] = ()
    """Recipes of `rollcast recipe list`, or run files, tried on the base as `rollcast ablate
    --recipe` does."""
    seeds: Annotated[int, Field(ge=1, le=100)] = 1
    """Runs of each arm. They begin with the base's `seed` and share a law. All arms together have
    100 runs at most."""
    target_device_hours: Annotated[float, Field(gt=0)] | None = None
    """Compute of one run, start-ups left out, at which the arms are compared: the compute at which
    the winner will be used. None = `budget.device_hours` of the run file."""
    budget: SweepBudget
    """Compute of the whole sweep: one of its two settings."""
    local: Local | None = None
    """The devices on which the arms take turns, as in a run file. None = the run file's."""
    slice: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a whole run that an arm gets at a time."""
    min_slice_pauses: Annotated[float, Field(ge=0)] = 10.0
    """A slice is longer than `slice` if needed: at least this many times the measured cost of a
    pause and a resume, so that pauses take at most a tenth of the compute. 0 = `slice` is kept."""
    pause_below: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Chance to be the best at the target below which an arm is paused. It is resumed if the chance
    rises above it again. 0 = the policy alone decides. 0.05 is the usual level of a test. With more
    than ten arms the bound is half an equal share of the chance, if that is less."""
    least_gain: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Pass rate. The sweep ends when the best further slices are expected to raise the level of the
    chosen arm at the target by less. 0 = the whole budget is spent. 0.001 is less than any
    evaluation shows."""


def load_sweep(path: Path) -> SweepFile:
    """Read a sweep file (YAML or JSON).

    Raises UserError: one sentence for each wrong field.
    """
    data = load_settings(path, "sweep file")
    try:
        sweep = SweepFile.model_validate(data)
    except ValidationError as error:
        mistakes = (
            mistake
            for item in error.errors(include_url=False)
            for mistake in find_mistakes(item, data, SweepFile)
        )
        sentences = [
            f"sweep file {path}: {mistake.sentence}"
            for mistake in islice(mistakes, MAX_NAMED_MISTAKES)
        ]
        raise UserError("\n".join(sentences)) from None
    given = [sweep.budget.device_hours, sweep.budget.runs]
    if given.count(None) != 1:
        raise UserError(
            f"sweep file {path}: budget: give either device_hours, or runs in whole runs of the "
            "target"
        )
    return sweep.model_copy(update={"base": path.parent / sweep.base})
