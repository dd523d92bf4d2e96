"""What one look at a source found: evaluations, and the state of the runs around them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rollcast.curves.evaluations import CurvePoint
from rollcast.curves.origin import Origin


@dataclass
class TrainerStatus:
    """What a run's trainer says of itself; None = not told."""

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
    """Training groups that came back since the trainer's process began, by what they can teach."""


@dataclass
class Reading:
    """Evaluations, and by run: status, what a file was read as, the step from which each incarnation continued."""

    evaluations: list[CurvePoint] = field(default_factory=list)
    status: dict[str, TrainerStatus] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    anew: set[str] = field(default_factory=set)
    """Runs whose file was written anew: what stands here is all that it tells, what was told before is void."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of readings that were left out."""
    away: list[str] = field(default_factory=list)
    """One sentence on each part of the source that does not answer while others do."""
