"""Records of a sweep: sweep.jsonl lists its slices, their ends, and its choices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rollcast.runfolder.records import STRICT, Amount, Share


class SliceEnding(StrEnum):
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    """The sweep was asked to stop."""
    FAILED = "failed"
    """The run died by its own doing: its settings, its code, memory that it does not find."""
    KILLED = "killed"
    """The run died of a cause that is not its own: a signal, a full disk, a network in trouble."""
    LOST = "lost"
    """The sweep's own process was killed."""


@dataclass(frozen=True, slots=True)
class SweepLine:
    """A line of sweep.jsonl: a slice that begins, a slice that ended, or a choice."""

    __pydantic_config__ = STRICT

    event: Literal["slice", "end", "choice"]
    at: Amount
    """Unix seconds."""
    run: str | None = None
    """The run of the slice, or the one that was chosen. None = no slice is worth its cost."""
    goal: Amount | None = None
    """Compute of the run, start-ups left out, at which the slice ends; in device-hours."""
    device_hours: Amount | None = None
    """All that the slice took, with start, stop and lost work."""
    start_device_hours: Amount | None = None
    """Compute from the start to the first step. None = there was no step."""
    stop_device_hours: Amount | None = None
    """Compute from the request to pause to the end. None = it was not asked to pause."""
    ending: SliceEnding | None = None
    error: str | None = None
    gain: float | None = None
    """Expected gain of the chosen arm's level at the target, for a choice."""
    slice_share: Share | None = None
    """Length of a slice as a share of a whole run, for a choice."""
    chances: dict[str, float] | None = None
    """Chance of each arm to be the best at the target, for a choice."""
