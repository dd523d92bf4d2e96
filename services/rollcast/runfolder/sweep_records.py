"""Records of a sweep: sweep.jsonl says what it began, how that ended, and what it chose."""

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
    """The run died."""
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
    """From the start to the first step. None = there was no step."""
    stop_device_hours: Amount | None = None
    """From the request to stop to the end of all processes. None = it was not asked to pause."""
    ending: SliceEnding | None = None
    error: str | None = None
    gain: float | None = None
    """Of a choice: expected gain of the chosen arm at the target, per slice."""
    slice_share: Share | None = None
    """Of a choice: length of a slice, as a share of a whole run."""
    chances: dict[str, float] | None = None
    """Of a choice: arm -> its chance to be the best at the target."""
