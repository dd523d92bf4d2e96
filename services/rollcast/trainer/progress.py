"""What a checkpoint holds besides weights and optimizer: the controller's side of the surviving history."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rollcast.recipe.curriculum import CurriculumState


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
    """Step of the newest closed evaluation; -1 = none."""
    curve: list[list[float]] = field(default_factory=list)
    """Step, pass rate, standard error and device-hours of each evaluation, where `stop_when` is set."""
    compute_state: dict[str, float] | None = None
    ledger: dict[str, Any] | None = None
    curriculum: CurriculumState | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Progress:
        return cls(**data)
