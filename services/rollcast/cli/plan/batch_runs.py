"""The runs that `rollcast plan batch` compares: the split of each one's step, its curve, and how
their files differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.recipe import Optimizer
from rollcast.config.resolved import differences
from rollcast.config.run import RunConfig, load_run_config
from rollcast.curves.axis import compute_per_step, make_curve, without_start_up
from rollcast.curves.columns.choices import Columns
from rollcast.curves.columns.units import STEPS
from rollcast.curves.curve_source import read_histories, tell
from rollcast.curves.evaluations import RunHistory
from rollcast.runfolder.files import EVALUATIONS, RUN_FILE
from rollcast.scaling.law.batch_shape import BatchShape
from rollcast.scaling.law.curve import Curve

ROLLOUTS = "rollouts"
"""Unit of compute of curves that count steps: a step of each split costs another amount."""
SHARED_GROUPS = ("model.", "tasks.", "recipe.")
"""Settings that runs must share to be compared by their splits."""
EXPECTED_DIFFERENCES = (
    "recipe.rollouts_per_prompt",
    "recipe.prompts_per_step",
    "recipe.optimizer.learning_rate",
    "tasks.evaluation.every_steps",
)
"""The split itself, what follows from longer steps, and the learning rate, which has a caution of
its own."""


@dataclass(frozen=True)
class BatchRun:
    """One run.

    Attributes:
        compute_per_step: in the unit of the curve; None if unknown.
        settings: of its run file; None for a curve of another framework.
    """

    name: str
    batch_shape: BatchShape
    curve: Curve
    compute_per_step: float | None
    settings: RunConfig | None


@dataclass(frozen=True)
class Source:
    """One argument, NAME=SOURCE or SOURCE alone."""

    name: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Source:
        """A name has neither slash nor colon, so that an address with `=` in it stays whole.

        Raises UserError.
        """
        name, separator, path = text.partition("=")
        if not separator or re.search("[/:]", name):
            return cls(Path(text).name.removesuffix(".csv"), text)
        if not name or not path:
            raise UserError(
                f"NAME=SOURCE {text!r}: needs a name and a curve or run folder, as a=curve.csv"
            )
        return cls(name, path)


def read_runs(
    texts: Sequence[str], columns: Columns, rollouts: Sequence[str], prompts: Sequence[str]
) -> list[BatchRun]:
    """`rollouts`, `prompts`: NAME=NUMBER, or a number for every run without a run file.

    Raises UserError.
    """
    sources = [Source.parse(text) for text in texts]
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{name}: is the name of {names.count(name)} runs; give each its own, as "
                "NAME=SOURCE"
            )
    # A source that cannot be read is refused before its numbers are asked for. A run folder takes
    # no columns.
    histories = [
        read_histories(source.path, Columns() if _is_folder(source) else columns, is_one=True)[0]
        for source in sources
    ]
    run_configs = [_run_file(source) for source in sources]
    foreign = [
        source.name
        for source, settings in zip(sources, run_configs, strict=True)
        if settings is None
    ]
    rollouts_per_prompt_by_run = given_numbers("--rollouts", rollouts, names, foreign)
    given_prompts = given_numbers("--prompts", prompts, names, foreign)
    runs = []
    for source, history, settings in zip(sources, histories, run_configs, strict=True):
        if settings is not None:
            batch_shape = BatchShape(
                settings.recipe.rollouts_per_prompt, settings.recipe.prompts_per_step
            )
        else:
            batch_shape = BatchShape(
                _require_number(
                    source.name, rollouts_per_prompt_by_run, "rollouts_per_prompt", "--rollouts"
                ),
                _require_number(source.name, given_prompts, "prompts_per_step", "--prompts"),
            )
        curve, cost = _curve(source, history, batch_shape)
        runs.append(BatchRun(source.name, batch_shape, curve, cost, settings))
    return runs


def given_numbers(
    option: str, texts: Sequence[str], names: Sequence[str], foreign: Sequence[str]
) -> dict[str, int]:
    """The number of each run in `foreign`, those without a run file. Raises UserError."""
    numbers: dict[str, int] = {}
    # Largest number of rollouts or prompts that is accepted: more is a wrong number.
    max_batch_setting = 1_000_000
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isdecimal() or not 1 <= int(number) <= max_batch_setting:
            raise UserError(
                f"{option} {text}: {number!r} is no number from 1 to {max_batch_setting}; give it "
                "as NAME=8"
            )
        if name and name not in names:
            raise UserError(
                f"{option} {text}: no run has the name {name!r}; give one of {', '.join(names)}"
            )
        if name and name not in foreign:
            raise UserError(
                f"{option} {text}: the run file of {name} has this number; leave the option out"
            )
        for run in [name] if name else foreign:
            if run in numbers:
                raise UserError(
                    f"{option} {text}: {run} has {numbers[run]} already; give each run one number"
                )
            numbers[run] = int(number)
    return numbers


def refuse_one_run_twice(runs: Sequence[BatchRun]) -> None:
    """Two runs of one split are welcome, the same curve under two names is not.

    Raises UserError.
    """
    for first_run, second_run in combinations(runs, 2):
        are_equal = (first_run.curve.compute.tobytes(), first_run.curve.pass_rate.tobytes()) == (
            second_run.curve.compute.tobytes(),
            second_run.curve.pass_rate.tobytes(),
        )
        if are_equal:
            raise UserError(
                f"{second_run.name}: is the same run as {first_run.name}; give each run once"
            )


def differences_of_files(runs: Sequence[BatchRun]) -> list[str]:
    """Cautions: settings besides the split in which run files differ from the first."""
    runs_with_files = [(run, run.settings) for run in runs if run.settings is not None]
    cautions = []
    # Settings that one caution names.
    max_named_differences = 4
    for run, settings in runs_with_files[1:]:
        first, its_settings = runs_with_files[0]
        fields = [
            difference.field
            for difference in differences(its_settings, settings)
            if difference.field.startswith(SHARED_GROUPS)
            and difference.field not in EXPECTED_DIFFERENCES
        ]
        if fields:
            more = len(fields) - max_named_differences
            named = ", ".join(fields[:max_named_differences]) + (
                f" and {more} more" if more > 0 else ""
            )
            cautions.append(
                f"{run.name} and {first.name} differ in {named} too; the split may not be the "
                "cause."
            )
        if (
            _same_rate(its_settings.recipe.optimizer, settings.recipe.optimizer)
            and run.batch_shape.rollouts_per_step != first.batch_shape.rollouts_per_step
        ):
            cautions.append(
                f"{run.name} and {first.name} have one learning rate for batches of "
                f"{run.batch_shape.rollouts_per_step} and {first.batch_shape.rollouts_per_step} "
                "rollouts; IsoCompute scales it with the root of the batch "
                "(recipe.optimizer.scale_with_batch)."
            )
    return cautions


def _same_rate(first: Optimizer, second: Optimizer) -> bool:
    return first.learning_rate == second.learning_rate and not (
        first.scale_with_batch or second.scale_with_batch
    )


def _is_folder(source: Source) -> bool:
    return (Path(source.path) / EVALUATIONS).is_file()


def _run_file(source: Source) -> RunConfig | None:
    """The settings of a run's folder; None for any other source, and for a folder without its run
    file.
    """
    file = Path(source.path) / RUN_FILE
    return load_run_config(file, dropped=[]) if _is_folder(source) and file.is_file() else None


def _require_number(name: str, numbers: dict[str, int], setting: str, option: str) -> int:
    if name not in numbers:
        raise UserError(f"{name}: its {setting} is not known; give it, as {option} {name}=8")
    return numbers[name]


def _curve(
    source: Source, history: RunHistory, batch_shape: BatchShape
) -> tuple[Curve, float | None]:
    """The curve, and the compute of a step; None if unknown. Raises UserError."""
    try:
        axis, curve = make_curve(history, without_start_up)
    except ValueError as error:
        raise UserError(f"{source.path}: {error}") from None
    curve = replace(curve, name=source.name)
    if axis.start_up > 0:
        tell(
            f"{source.path}: is counted without the {axis.start_up:.3g} {curve.unit} of its "
            "start-up"
        )
    if curve.unit == STEPS:
        cost = float(batch_shape.rollouts_per_step)
        tell(
            f"{source.path}: its steps are counted as {batch_shape.rollouts} x "
            f"{batch_shape.prompts} = {cost:g} rollouts each"
        )
        return replace(curve, compute=curve.compute * cost, unit=ROLLOUTS), cost
    # Rows of a table may have no steps; those of a run's folder always do.
    return curve, compute_per_step(history.evaluations) if _is_folder(source) else None
