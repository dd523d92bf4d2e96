"""The tasks of a simulated run: lengths of rollouts, and the share of filtered groups."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Lengths = Callable[[random.Random], float]
"""Draws the length of one rollout in tokens, > 0."""


def constant(tokens: float) -> Lengths:
    """Every rollout has `tokens` tokens."""
    return lambda rng: tokens


def lognormal(median: float, sigma: float, budget: float = math.inf) -> Lengths:
    """Lognormal lengths in tokens, cut at the token budget: reasoning models' lengths have such a tail."""
    location = math.log(median)
    return lambda rng: min(rng.lognormvariate(location, sigma), budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The tasks of a run. A task's lengths depend on the seed and its number only, whatever happens around it."""

    lengths: Lengths
    rollouts_per_group: int = 1
    """G."""
    filtered: float = 0.0
    """Probability that a group has no variance and is filtered."""
    scale: Callable[[int], float] | None = None
    """Factor of the lengths of the task with a number: answers grow while a model learns. None = 1."""
    prompt_tokens: float = 0.0
    """Tokens of context before the first token of a rollout."""
    seed: int = 0

    def task(self, number: int) -> "Task":
        """Return the task with that number."""
        rng = random.Random(self.seed * 1_000_003 + number)
        scale = 1.0 if self.scale is None else self.scale(number)
        return Task(
            number=number,
            filtered=rng.random() < self.filtered,
            lengths=tuple(scale * self.lengths(rng) for _ in range(self.rollouts_per_group)),
            prompt_tokens=self.prompt_tokens,
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt to be answered G times."""

    number: int
    filtered: bool
    lengths: tuple[float, ...]
    """[G] tokens of each rollout."""
    prompt_tokens: float = 0.0

    def context(self, remaining: float) -> float:
        """Mean context of a rollout of which `remaining` tokens are to be sampled, as if it were a fresh one."""
        return self.prompt_tokens + remaining / 2
