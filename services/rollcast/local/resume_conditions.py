"""The conditions that a resumed run keeps: prompts and grading of its curve, and what its
checkpoint is a state of.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollcast.config.datasets import RowsDataset
from rollcast.config.errors import UserError
from rollcast.config.function_loading import is_function
from rollcast.config.model import Model
from rollcast.config.resolved import Difference
from rollcast.config.rewarding import environment_rewards
from rollcast.config.tasks import Tasks
from rollcast.memory.text_model import read_model_config, weight_sizes
from rollcast.tasks.mappings import resolve_mapping

FIXED = (
    "tasks.dataset.kind",
    "tasks.dataset.name",
    "tasks.evaluation.num_prompts",
    "tasks.evaluation.seed",
)
"""Settings that decide which prompts the curve is measured on: with others it would go on as
another one, unnoticed."""
FIXED_BY_A_CHECKPOINT = ("seed", "recipe.unique_prompts", "model.lora")
"""A checkpoint holds a position in the order of the prompts, and the weights that are trained."""
GRADE_SETTINGS = (
    "kind",
    "code",
    "model",
    "prompt",
    "factory",
    "taskset",
    "reward_range",
)
"""Settings of verifiers and environments that decide the grade of an answer. Addresses and limits
do not."""
REMEDY = "set what the run was started with, or choose another name for `run`"
SAME_FUNCTION = (
    "; if it is the same function under a new name, write that name into up.json in the run's "
    "folder"
)


def check_curve(changes: Sequence[Difference], old_tasks: Tasks, new_tasks: Tasks) -> None:
    """`changes`: of all settings. Raises UserError if the curve would go on as another one."""
    if fixed := _among(changes, FIXED):
        raise UserError(f"--resume: {fixed}: the curve is measured on other prompts then; {REMEDY}")
    regraded = _other_grades(old_tasks, new_tasks)
    if regraded:
        changed = "; ".join(difference.sentence for difference in regraded)
        functions = all(
            is_function(str(name))
            for difference in regraded
            for name in (difference.old_value, difference.new_value)
        )
        remedy = REMEDY + (SAME_FUNCTION if functions else "")
        raise UserError(f"--resume: {changed}: the curve means something else then; {remedy}")


def check_checkpoint(changes: Sequence[Difference], old_model: Model, new_model: Model) -> None:
    """`changes`: of all settings.

    Raises UserError if a checkpoint of the run cannot be continued with them.
    """
    if fixed := _among(changes, FIXED_BY_A_CHECKPOINT):
        raise UserError(
            f"--resume: {fixed}: the newest checkpoint is of a run without that change; {REMEDY}"
        )
    earlier = weight_sizes(read_model_config(old_model))
    later = weight_sizes(read_model_config(new_model))
    changed_sizes = [name for name in earlier.keys() & later.keys() if earlier[name] != later[name]]
    if changed_sizes:  # this machine has the config.json of both
        sizes = ", ".join(
            f"{name} {earlier[name]} -> {later[name]}" for name in sorted(changed_sizes)
        )
        raise UserError(
            f"--resume: model.path {old_model.path!r} -> {new_model.path!r}: {sizes}: the newest "
            f"checkpoint is of a model of another shape; {REMEDY}"
        )


def _among(changes: Sequence[Difference], settings: Sequence[str]) -> str:
    """The changes of these settings and groups in words; empty without any."""
    return "; ".join(
        difference.sentence
        for difference in changes
        if any(f"{difference.field}.".startswith(f"{name}.") for name in settings)
    )


def _other_grades(old_tasks: Tasks, new_tasks: Tasks) -> list[Difference]:
    earlier = _grading(old_tasks)
    later = _grading(new_tasks)
    return [
        Difference(
            f"{setting} of data set {dataset}",
            earlier.get((dataset, setting)),
            later.get((dataset, setting)),
        )
        for dataset, setting in dict.fromkeys((*earlier, *later))
        if earlier.get((dataset, setting)) != later.get((dataset, setting))
    ]


def _grading(tasks: Tasks) -> dict[tuple[str, str], Any]:
    """Settings that decide the meaning of the curve's pass rate, by data set and setting. Functions
    count by the names of their files."""
    grading: dict[tuple[str, str], Any] = {}
    for mixture_part in tasks.parts:
        dataset = mixture_part.dataset
        grading[dataset.name, "weight"] = mixture_part.weight
        if not isinstance(dataset, RowsDataset):
            continue
        verifier = resolve_mapping(dataset).verifier
        grading[dataset.name, "verifier"] = _without_folder(verifier)
        grading[dataset.name, "answer_field"] = dataset.answer_field
        grading[dataset.name, "environment"] = dataset.environment
        named = [
            verifier_settings
            for verifier_settings in tasks.verifiers
            if verifier_settings.name == verifier
        ]
        environments = [
            environment
            for environment in tasks.environments
            if environment.name == dataset.environment
        ]
        for environment in environments:
            rewarding = "environment" if environment_rewards(environment, dataset) else "verifier"
            grading[dataset.name, f"{environment.name}.reward"] = rewarding
        for settings in (*named, *environments):
            for setting in set(GRADE_SETTINGS) & type(settings).model_fields.keys():
                grading[dataset.name, f"{settings.name}.{setting}"] = _without_folder(
                    getattr(settings, setting)
                )
    return grading


def _without_folder(value: object) -> Any:
    return (
        Path(value).name
        if isinstance(value, str) and is_function(value) and "\n" not in value
        else value
    )
