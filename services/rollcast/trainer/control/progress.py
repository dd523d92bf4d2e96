"""What a checkpoint holds besides weights and optimizer: the controller's side of the surviving history."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rollcast.config.errors import UserError
from rollcast.recipe.curriculum import CurriculumState
from rollcast.recipe.mixture import MixtureState
from rollcast.runfolder.checkpoint_place import Place
from rollcast.telemetry.names import DOWNSTREAM_PREFIX
from rollcast.wire.version import PolicyVersion


@dataclass(slots=True)
class Progress:
    """Plain JSON values."""

    step: int = 0
    """Optimizer steps in the surviving history."""
    incarnation: int = 0
    """That wrote the checkpoint; 0 = before the first."""
    earlier: list[list[int]] = field(default_factory=list)
    """Earlier incarnations, each with its last surviving step."""
    trained_tokens: int = 0
    uses: dict[str, int] = field(default_factory=dict)
    """Prompt id -> how often it was trained on."""
    evaluated_step: int = -1
    """Step of the newest closed evaluation of the held-out prompts; -1 = none."""
    downstream_steps: dict[str, int] = field(default_factory=dict)
    """Step of the newest closed evaluation of each downstream set, by its label."""
    curve: list[list[float]] = field(default_factory=list)
    """Step, pass rate, standard error and device-hours of each evaluation, where `stop_when` is set."""
    compute_state: dict[str, float] | None = None
    start_up: float | None = 0.0
    """Of it, device-hours spent on starting up; None = written by a release that did not measure them."""
    spent_before: float | None = None
    """Device-hours that went into the model before the run began; no part of `compute_state`. None = not known."""
    ledger: dict[str, Any] | None = None
    curriculum: CurriculumState | MixtureState | None = None

    @property
    def is_restored(self) -> bool:
        """Whether it is of a checkpoint."""
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
    def from_json(cls, data: dict[str, Any]) -> Progress:
        """Raises UserError where another release wrote what this one does not know."""
        if unknown := data.keys() - {item.name for item in fields(cls)}:
            raise UserError(
                f"checkpoint: holds {', '.join(sorted(unknown))}, which this Rollcast does not know; "
                "resume with the release that wrote it, or a newer one"
            )
        return cls(**{"start_up": None} | data)


@dataclass(frozen=True, slots=True)
class CheckpointUnderWay:
    """A checkpoint on its way to the disk."""

    version: PolicyVersion
    started: float
    """Monotonic seconds."""
    written: Future[Place]
    held: dict[int, str]
    """Groups that nobody needs once it is there: task sequence -> stream id."""
