"""The run file that `rollcast init` writes: no longer than needed, with a word on each line."""

import math
from dataclasses import dataclass

import yaml

from rollcast.curves.amounts import format_count
from rollcast.local.first_run.inspection import DataLook
from rollcast.local.frozen_forecast import LEAST_EVALUATIONS
from rollcast.tasks.mappings import MATH_TEMPLATE
from rollcast.tasks.verifiers import is_built_in


@dataclass(frozen=True, slots=True)
class Answers:
    run: str
    model: str
    data: DataLook
    verifier: str
    trusted: bool
    steps: int | None
    device_hours: float | None
    """Both None: a run without end, asked for."""


def run_file_text(answers: Answers) -> str:
    """The text of the run file."""
    lines = [
        (
            "# Made by `rollcast init`. What it leaves out is filled in: `rollcast config check` "
            "prints it."
        ),
        f"run: {_scalar(answers.run)} # everything it writes goes to runs/{answers.run}",
        "model:",
        f"  path: {_scalar(answers.model)} # a folder, or a name on the hub",
        "tasks:",
        "  dataset:",
        *(f"    {line}" for line in _dataset(answers)),
    ]
    if answers.trusted:
        settings = (
            f"{{kind: function, name: mine, code: {_scalar(answers.verifier)}, trusted: true}}"
        )
        lines += ["  verifiers:", f"    - {settings} # with files and network"]
    # Evaluations of a run: a forecast needs five, and more make it better.
    num_evaluations = 12
    if answers.steps is not None:
        every = max(1, round(answers.steps / num_evaluations))
        lines.append(f"  evaluation: {{every_steps: {every}}} # {_points(answers.steps, every)}")
    else:
        comment = (
            "a point of the curve; `rollcast try` says how long a step takes, and "
            f"{num_evaluations} points are enough"
        )
        # Used while the number of steps is unknown: a tenth of the usual distance, because a first
        # run is short.
        every_steps = 10
        lines.append(f"  evaluation: {{every_steps: {every_steps}}} # {comment}")
    lines.append(_budget(answers))
    return "\n".join(lines) + "\n"


def _dataset(answers: Answers) -> list[str]:
    data = answers.data
    verifier = answers.verifier
    lines = [f"kind: {data.kind}", f"name: {_scalar(data.name)} # its label in metrics and curves"]
    if data.mapping != "plain":
        lines.append(
            f"mapping: {data.mapping} # knows where the set is, its fields and its verifier"
        )
    else:
        lines.append(f"path: {_scalar(data.path)}")
        if data.prompt_field != "prompt":
            lines.append(f"prompt_field: {_scalar(data.prompt_field)}")
        if is_built_in(verifier) and data.answer_field not in (None, "answer"):
            lines.append(f"answer_field: {_scalar(data.answer_field)}")
    if data.mapping == "plain" or verifier != data.suits:
        lines.append(
            f"verifier: {'mine' if answers.trusted else _scalar(verifier)} # "
            f"{_verifier_in_words(verifier)}"
        )
    if data.mapping == "plain" and verifier == "math":
        lines.append(f"template: {_scalar(MATH_TEMPLATE)} # the text around each prompt")
    return lines


def _points(steps: int, every: int) -> str:
    """The number of evaluations after the start in a run of this many steps; the end always has
    one.
    """
    points = math.ceil(steps / every)
    few = "" if points >= LEAST_EVALUATIONS else f"; a forecast takes {LEAST_EVALUATIONS}"
    return f"{format_count(points, 'point')} of the curve, from held-out prompts{few}"


def _budget(answers: Answers) -> str:
    if answers.steps is not None:
        return f"budget: {{steps: {answers.steps}}} # optimizer steps; or device_hours"
    if answers.device_hours is not None:
        return (
            f"budget: {{device_hours: {answers.device_hours:g}}} # GPU-hours, core-hours without a "
            "GPU; or steps"
        )
    return "budget: {endless: true} # Ctrl-C ends it; or steps, or device_hours"


def _verifier_in_words(verifier: str) -> str:
    if verifier == "math":
        return "right where math-verify finds the answer equal"
    if verifier == "exact":
        return "right where the answer is the reference, word for word"
    return "built in (docs/data.md)" if is_built_in(verifier) else "called with (completion, row)"


def _scalar(value: object) -> str:
    """A text as YAML has it on one line, within braces as well."""
    if isinstance(value, str) and (
        ":" in value or "\n" in value or any(mark in value for mark in "{}[],#")
    ):
        return yaml.safe_dump(value, default_style='"', width=1_000_000, allow_unicode=True).strip()
    return (
        yaml.safe_dump(value, width=1_000_000, allow_unicode=True)
        .removesuffix("\n")
        .removesuffix("\n...")
    )
