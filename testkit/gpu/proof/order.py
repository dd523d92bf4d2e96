"""Which part comes next within the time that is left.

    missing -> begun -> done
                     -> failed: repeated only if that is asked for
                     -> cut by the end of the whole command's time: tried again after all parts
                        that were never begun

A part that does not fit into the time left is passed over, since a shorter one behind it may fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from testkit.gpu.parts import Part

State = Literal["missing", "done", "failed", "cut"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a part has come."""

    state: State = "missing"
    seconds: float = 0.0
    """How long its last try took; 0 = it was not tried."""


def expected_seconds(gpu_part: Part, standing: Standing) -> float:
    """Seconds that the part must have before it is begun."""
    if standing.state == "cut":
        # A part that was cut after some seconds is expected to take this many times as long
        return max(gpu_part.expected_seconds, 1.5 * standing.seconds)
    return gpu_part.expected_seconds


def next_part(
    parts: Mapping[str, Part], standings: Mapping[str, Standing], seconds_left: float | None
) -> str | None:
    """The part to begin now, or None if nothing is open or nothing fits. seconds_left: None = no
    limit.
    """
    for name in open_parts(parts, standings):
        if seconds_left is None or expected_seconds(parts[name], standings[name]) <= seconds_left:
            return name
    return None


def open_parts(parts: Mapping[str, Part], standings: Mapping[str, Standing]) -> list[str]:
    """Parts without a result, in the order in which they are tried."""
    states: tuple[State, ...] = ("missing", "cut")
    return [name for state in states for name in parts if standings[name].state == state]
