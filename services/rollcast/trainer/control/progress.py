"""The controller's part of a checkpoint, besides weights and optimizer: its side of the surviving
history.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from rollcast.config.errors import UserError
from rollcast.config.rules_versions import FIRST_RULES, GRADING_RULES, SPLIT_RULES
from rollcast.recipe.curriculum import CurriculumState
from rollcast.recipe.mixture import MixtureState
from rollcast.runfolder.records import EvaluationRecord
from rollcast.runfolder.survival import is_complete
from rollcast.telemetry.evaluation_metrics import DOWNSTREAM_PREFIX
from rollcast.trainer.control.compute import ROLES
from rollcast.trainer.control.ledger import Ledger

Count = Annotated[int, Field(ge=0)]
Version = Annotated[int, Field(ge=1)]


def _whole_row(stored_row: Any) -> Any:
    """An earlier release wrote the first four numbers alone."""
    return (
        [*stored_row, *[None] * 4]
        if isinstance(stored_row, list) and len(stored_row) == 4
        else stored_row
    )


CurveRow = Annotated[
    tuple[float, float, float, float, float | None, float | None, float | None, float | None],
    BeforeValidator(_whole_row),
]
"""Step, pass rate, standard error, device-hours, those of start-ups, devices, trained tokens,
truncation ratio."""


def add_reading(rows: list[CurveRow], evaluation: EvaluationRecord) -> bool:
    """Append the evaluation and return True, unless too few of its prompts were graded: the
    forecaster leaves such a one out too.
    """
    if not is_complete(evaluation.graded_share):
        return False
    reading = (evaluation.step, evaluation.pass_rate, evaluation.standard_error or 0.0)
    hours = (evaluation.compute_device_hours, evaluation.start_up_device_hours)
    run_state = (evaluation.devices, evaluation.trained_tokens, evaluation.truncation_ratio)
    rows.append((*reading, *hours, *run_state))
    return True


class MalformedProgress(ValueError):  # noqa: N818  (a finding: an older checkpoint may be whole)
    """The controller's state in a checkpoint is not what any release writes."""


def _with_all(names: Collection[str]) -> BeforeValidator:
    def check(stored_fields: Any) -> Any:
        if isinstance(stored_fields, dict) and (missing_names := set(names) - stored_fields.keys()):
            raise ValueError(f"lacks {min(missing_names)}")
        return stored_fields

    return BeforeValidator(check)


@dataclass(slots=True)
class Progress:
    """The controller's state in a checkpoint, whose JSON has these fields."""

    step: Count = 0
    """Optimizer steps in the surviving history."""
    incarnation: Count = 0
    """Incarnation that wrote the checkpoint; 0 = before the first."""
    earlier: tuple[tuple[int, int], ...] = ()
    """Earlier incarnations, each with its last surviving step."""
    trained_tokens: Count = 0
    uses: dict[str, int] = field(default_factory=dict)
    """Prompt id -> how often it was trained on."""
    evaluated_step: int = -1
    """Step of the newest closed evaluation of the held-out prompts; -1 = none."""
    downstream_steps: dict[str, int] = field(default_factory=dict)
    """Step of the newest closed evaluation of each downstream set, by its label."""
    curve: list[CurveRow] = field(default_factory=list)
    """Each complete evaluation of the held-out prompts. A release that had `stop_when` alone to
    read them kept none without it."""
    compute_state: Annotated[dict[str, float], _with_all(ROLES)] | None = None
    start_up: float = 0.0
    """Device-hours of `compute_state` spent on start-up."""
    spent_before: float | None = None
    """Device-hours that went into the model before the run began; no part of `compute_state`. None
    = not known."""
    ledger: Annotated[Ledger, _with_all([item.name for item in fields(Ledger)])] | None = None
    curriculum: CurriculumState | MixtureState | None = None
    split_rules: Version = SPLIT_RULES
    """Rules by which the run's prompts were divided when it began; it keeps them."""
    grading_rules: Version = GRADING_RULES
    """Rules by which answers were graded when the checkpoint was written."""
    prompts: str = ""
    """Digest of the run's training and held-out prompts; empty in a checkpoint of an earlier
    release."""

    @property
    def is_restored(self) -> bool:
        return self.incarnation > 0

    def newest_evaluation(self, label: str) -> int:
        """Step of the newest closed evaluation under that label; -1 = none."""
        is_downstream = label.startswith(DOWNSTREAM_PREFIX)
        return self.downstream_steps.get(label, -1) if is_downstream else self.evaluated_step

    def note_evaluation(self, label: str, step: int) -> None:
        """One was closed, with or without a result."""
        newest = max(step, self.newest_evaluation(label))
        if label.startswith(DOWNSTREAM_PREFIX):
            self.downstream_steps[label] = newest
        else:
            self.evaluated_step = newest

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Progress":
        """Raises UserError for fields of another release that are unknown here, MalformedProgress
        for a value of a type that no release writes."""
        # Checkpoints of earlier releases lack these fields.
        data = {"split_rules": FIRST_RULES, "grading_rules": FIRST_RULES, "prompts": ""} | data
        names = {item.name for item in fields(cls)}
        if unknown := data.keys() - names:
            raise UserError(
                f"checkpoint: holds {', '.join(sorted(unknown))}, which this Rollcast does not "
                "know; resume with the release that wrote it, or a newer one"
            )
        if missing_names := names - data.keys():
            raise MalformedProgress(f"its controller's state lacks {min(missing_names)}")
        try:
            progress: Progress = _ADAPTER.validate_python(data)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_context=False)[0]
            field_path = ".".join(map(str, first_error["loc"]))[:200]
            raise MalformedProgress(
                f"its controller's {field_path}: {first_error['msg'][:200]}"
            ) from None
        newest = {"split_rules": SPLIT_RULES, "grading_rules": GRADING_RULES}
        if newer := [name for name, version in newest.items() if getattr(progress, name) > version]:
            raise UserError(
                f"checkpoint: {newer[0]} is {getattr(progress, newer[0])}, and this Rollcast knows "
                f"{newest[newer[0]]} at most; resume with the release that wrote it, or a newer one"
            )
        return progress


_ADAPTER = TypeAdapter(Progress)
