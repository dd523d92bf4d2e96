"""Inputs of a decision on the number of generators: the run's limits, and what earlier
decisions found.
"""

import math
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Slots as the generators report them, else of the run file, and the staleness window of the
    run file.
    """

    slots: int
    """Concurrent rollouts of one generator."""
    rollouts_per_group: int
    window_groups: int
    """Most groups that may be dispatched and not settled: the widest W of the staleness gate."""
    most_batch_wait: ClassVar[float] = 0.02
    """Share of its time that the trainer may wait for a batch; above it, generators are added. Half
    of what a run may idle, so that it is acted on in time."""
    probe_again_seconds: ClassVar[float] = 7_200.0
    """Time after the last shortage of generators until one fewer than was needed then is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """State from earlier decisions. Times in seconds on the clock of the measurements."""

    target: int
    capability: float | None = None
    """Tokens a second of one generator: measured, or the largest lower bound so far."""
    seen_at: float | None = None
    """When it was measured with full generators; None = it is a lower bound."""
    seen_tokens: float | None = None
    """Mean completion then."""
    required_history: tuple[tuple[float, int], ...] = ()
    """(time, n*) over the time that a fall has to wait."""
    rose_at: float = -math.inf
    fell_at: float = -math.inf
    tries_from: float = -math.inf
    """Until then no generator is let go on trial."""

    @classmethod
    def make_initial(cls, target: int, now_seconds: float) -> "Memory":
        """State at a start.

        An earlier autoscaler may have measured more, so no generator is let go on trial yet.
        """
        return cls(target=target, tries_from=now_seconds + ReplicaLimits.probe_again_seconds)
