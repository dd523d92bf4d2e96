"""Totals of a simulated run."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """Totals since the start; times in seconds."""

    groups: Counter[str] = field(default_factory=Counter)
    """Groups by outcome: used, filtered, lost (generator killed, or weights of lost steps), given_up (by the gate)."""
    dispatched: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    """Groups trained on (filtered ones of their batches included) by the staleness of their oldest token, in steps."""
    history: list[tuple[int, int]] = field(default_factory=list)
    """(step it was a part of, task number) of every used or filtered group in the surviving history."""
    most_outstanding: int = 0
    """Most groups ever dispatched and not settled."""
    updates: int = 0
    """Optimizer steps made, those lost by restarts included."""
    train_seconds: float = 0.0
    wait_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By the reason of the wait: a `WaitReason`, or "restart"."""
    lifetimes: list[tuple[float, float]] = field(default_factory=list)
    """(tokens of its longest rollout, seconds from its first token to its end) of every finished group."""
    consumed_tokens: float = 0.0
    """Tokens of the used and filtered groups."""
    mean_tokens: float | None = None
    """Mean length of the rollouts of the newest batch; None before the first."""
    step_times: list[float] = field(default_factory=list)
    """When each optimizer step was made."""
