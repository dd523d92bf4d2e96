"""What one look at a source found: evaluations, and the state of the runs around them."""

from collections import Counter
from dataclasses import dataclass, field

from rollcast.curves.evaluations import CurvePoint, Origin


@dataclass
class TrainerStatus:
    """What a run's trainer reports about itself; None = not reported."""

    step: float | None = None
    incarnation: float | None = None
    max_staleness: float | None = None
    longest_group_ratio: float | None = None
    truncation_ratio: float | None = None
    interrupted_ratio: float | None = None
    reward_mean: float | None = None
    budget_steps: float | None = None
    budget_device_hours: float | None = None
    staleness: dict[float, float] = field(default_factory=dict)
    """Bound (steps) -> tokens at most that old, cumulative as a histogram's buckets are."""
    group_signals: dict[str, float] = field(default_factory=dict)
    """Training groups received since the trainer's process began, by their signal."""


@dataclass
class Reading:
    """Evaluations, and by run: status, origin, and the step from which each incarnation continued."""

    evaluations: list[CurvePoint] = field(default_factory=list)
    status: dict[str, TrainerStatus] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    anew: set[str] = field(default_factory=set)
    """Runs of which this reading holds everything, because their file was read whole or was replaced. If an earlier
    evaluation is missing here, it no longer exists."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of readings that were left out."""
    away: list[str] = field(default_factory=list)
    """One sentence on each part of the source that cannot be read while others can."""
