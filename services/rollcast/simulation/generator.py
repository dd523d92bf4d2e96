"""A generator: rollouts share its engine, which decodes one token of each per engine step.

The engine step gets longer with the number of running rollouts. Progress is kept as one number, the
tokens that a rollout running since the beginning would have sampled: all running rollouts advance
alike, so one that starts at progress p with n tokens ends at progress p + n, whatever joins or
leaves in between.
"""

import heapq
from dataclasses import dataclass, field

from rollcast.recipe.staleness import Group
from rollcast.simulation.workload import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpeed:
    """Speed of one generator."""

    slots: int
    """Rollouts that run at the same time; a task is claimed when all its rollouts fit."""
    seconds_per_token: float
    """Duration of an engine step with one rollout running."""
    seconds_per_token_per_rollout: float = 0.0
    """Added by each further running rollout."""
    seconds_per_context_token: float = 0.0
    """Added by each token of context: attention reads the KV entries of all running rollouts. A
    rollout counts with the mean of its context over the time it runs."""

    @classmethod
    def through(cls, slots: int, tokens_per_second: float, alone: float) -> "EngineSpeed":
        """The straight line through the rate with every slot taken and that of one rollout alone,
        both in tokens a second.
        """
        if slots == 1:
            return cls(slots=slots, seconds_per_token=1 / tokens_per_second)
        full = slots / tokens_per_second
        return cls(
            slots=slots,
            seconds_per_token=1 / alone,
            seconds_per_token_per_rollout=(full - 1 / alone) / (slots - 1),
        )

    def step_seconds(self, running: int, context: float = 0.0) -> float:
        """Return the duration of an engine step with `running` rollouts of `context` tokens
        together, in seconds.
        """
        return (
            self.seconds_per_token
            + (running - 1) * self.seconds_per_token_per_rollout
            + context * self.seconds_per_context_token
        )


@dataclass(slots=True, eq=False)
class Attempt:
    """One dispatch of a task, from its place in the queue to its settlement."""

    sequence: int
    task: Task
    remaining: list[float]
    """[unfinished rollouts] tokens still to sample."""
    oldest: int | None = None
    """Oldest step among its tokens."""
    newest: int | None = None
    """Newest step among its tokens; while it runs, when its owner last took or left it."""
    recorded: int | None = None
    """`oldest` as far as the trainer knows."""
    ready: bool = False
    owner: "SimulatedGenerator | None" = None
    started_at: float | None = None
    _group: Group | None = None

    def group(self) -> Group:
        """Return the record of it that the trainer has."""
        group_record = self._group
        if (
            group_record is None
            or group_record.first_step != self.recorded
            or group_record.ready != self.ready
        ):
            group_record = Group(self.sequence, self.recorded, self.ready)
            self._group = group_record
        return group_record


@dataclass(slots=True, eq=False)
class SimulatedGenerator:
    """A pod: its engine, the weights it samples with and the rollouts it runs."""

    name: int
    engine: EngineSpeed
    step: int
    """Step of the weights in use."""
    member: bool = False
    """Belongs to the weight epoch, and may claim tasks."""
    alive: bool = True
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """By sequence."""
    busy_seconds: float = 0.0
    """Time with at least one rollout running."""
    tokens: float = 0.0
    """Tokens sampled."""
    changes: int = 0
    """Rises whenever `next_end` changes."""
    _progress: float = 0.0
    _updated_at: float = 0.0
    _ends: list[tuple[float, int, float]] = field(default_factory=list)
    """Heap of (progress at its end, sequence, mean context), one entry per running rollout."""
    _context: float = 0.0
    """Sum of the mean contexts."""
    _began: dict[int, float] = field(default_factory=dict)
    """Progress at which each attempt was started here."""

    @property
    def running(self) -> int:
        """Rollouts running now."""
        return len(self._ends)

    @property
    def step_seconds(self) -> float:
        """Duration of an engine step now."""
        return self.engine.step_seconds(self.running, self._context)

    @property
    def inflight_tokens(self) -> float:
        """Tokens that the running rollouts have sampled here, as of the last `advance`."""
        return sum(self._progress - self._began[sequence] for _, sequence, _ in self._ends)

    def has_room(self, attempt: Attempt) -> bool:
        """Return whether all rollouts of `attempt` fit; an idle generator takes a group of any
        size.
        """
        return not self._ends or self.running + len(attempt.remaining) <= self.engine.slots

    def advance(self, now_seconds: float) -> None:
        """Let the running rollouts sample until `now_seconds`."""
        if self._ends and self.alive:
            elapsed = now_seconds - self._updated_at
            gained = elapsed / self.step_seconds
            self._progress += gained
            self.tokens += gained * self.running
            self.busy_seconds += elapsed
        self._updated_at = now_seconds

    def start(self, attempt: Attempt, now_seconds: float) -> None:
        """Sample the remaining tokens of `attempt` from `now_seconds` on."""
        self.advance(now_seconds)
        self.changes += 1
        attempt.owner = self
        attempt.started_at = now_seconds if attempt.started_at is None else attempt.started_at
        attempt.oldest = self.step if attempt.oldest is None else min(attempt.oldest, self.step)
        self.attempts[attempt.sequence] = attempt
        self._began[attempt.sequence] = self._progress
        for tokens in attempt.remaining:
            context = attempt.task.context(tokens)
            self._context += context
            heapq.heappush(self._ends, (self._progress + tokens, attempt.sequence, context))

    def next_end(self) -> float | None:
        """Return when the next rollout ends if none joins or leaves before; None when idle."""
        if not self._ends:
            return None
        return self._updated_at + (self._ends[0][0] - self._progress) * self.step_seconds

    def finish_next(self, now_seconds: float) -> Attempt | None:
        """End the rollout that is due at `now_seconds`; return its attempt if that was the last
        one.
        """
        self.advance(now_seconds)
        self.changes += 1
        self._progress, sequence, context = heapq.heappop(self._ends)
        self._context -= context
        attempt = self.attempts[sequence]
        attempt.remaining.pop()
        if attempt.remaining:
            return None
        self._release(attempt)
        return attempt

    def stop(self, attempt: Attempt, now_seconds: float) -> None:
        """Stop sampling `attempt`; its unfinished rollouts keep their tokens."""
        self.advance(now_seconds)
        self.changes += 1
        attempt_ends = [end for end, sequence, _ in self._ends if sequence == attempt.sequence]
        attempt.remaining = [max(0.0, end - self._progress) for end in attempt_ends]
        self._ends = [entry for entry in self._ends if entry[1] != attempt.sequence]
        self._context = sum(context for _, _, context in self._ends)
        heapq.heapify(self._ends)
        self._release(attempt)

    def _release(self, attempt: Attempt) -> None:
        del self.attempts[attempt.sequence], self._began[attempt.sequence]
        attempt.owner = None
        attempt.newest = self.step if attempt.newest is None else max(attempt.newest, self.step)
