"""A discrete-event model of the whole pipeline around the real gate and schedule.

Nothing of `rollcast.recipe.schedule` is imitated: the model builds its `PipelineState` and obeys.
The life of one dispatch:

    queue --> running --> ready --> in training --> settled: used | filtered
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from rollcast.recipe.schedule import PipelineState, Schedule, Wait
from rollcast.recipe.staleness import enough_groups
from rollcast.simulation.events import Events
from rollcast.simulation.fleet import Delays, SimulatedFleet
from rollcast.simulation.generator import Attempt, EngineSpeed
from rollcast.simulation.workload import Workload

RECENT_STEPS = 16
"""Newest steps whose groups determine how many groups keep the trainer busy. Chosen, not
measured."""


class DeadlockError(RuntimeError):
    """The run cannot finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrainer:
    """The trainer's speed; times in seconds."""

    step: float = 1.0
    """One optimizer step."""
    per_token: float = 0.0
    """Added by each token that it trains on."""
    spread: float = 0.0
    """Relative spread of it, uniform in [1 - spread, 1 + spread]."""


@dataclass(slots=True)
class Report:
    """Totals since the start; times in seconds."""

    groups: Counter[str] = field(default_factory=Counter)
    """Groups by outcome: used or filtered."""
    dispatched: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    """Groups trained on (filtered ones of their batches included) by the staleness of their oldest
    token, in steps."""
    wait_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By the reason of the wait, a `WaitReason`."""
    lifetimes: list[tuple[float, float]] = field(default_factory=list)
    """(tokens of its longest rollout, seconds from its first token to its end) of every finished
    group."""
    step_times: list[float] = field(default_factory=list)
    """When each optimizer step was made."""


class Pipeline:
    """The model. Schedule changes with `at`, then `run`; both may be repeated."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        workload: Workload,
        engines: Sequence[EngineSpeed],
        trainer: SimulatedTrainer | None = None,
        delays: Delays | None = None,
        fresh: bool = False,
        seed: int = 0,
    ) -> None:
        """`fresh`: dispatch no more than keeps the trainer busy, as the trainer does
        (`staleness.enough_groups`).

        `seed` draws delays and step durations; the workload has a seed of its own.
        """
        self.step = 0
        """t."""
        self.report = self._make_report()
        self._schedule = schedule
        self._fresh = fresh
        self._workload = workload
        self._trainer = trainer or SimulatedTrainer()
        self._events = Events()
        self._rng = random.Random(seed)
        self.fleet = self._make_fleet(delays or Delays(), seed + 1)
        self._steps_since_start = 0
        self._outstanding: dict[int, Attempt] = {}
        self._training: list[Attempt] = []
        self._durations: deque[float] = deque(maxlen=RECENT_STEPS)
        self._enough_known: tuple[int, float, int | None] = (-1, 0.0, None)
        """Finished groups and typical step, and `enough_groups` of these."""
        self._num_tasks = 0
        self._waiting: str | None = None
        self._booked_until = 0.0
        for engine in engines:
            self.fleet.join(engine)
        self._decide()

    def _make_report(self) -> Report:
        return Report()

    def _make_fleet(self, delays: Delays, seed: int) -> SimulatedFleet:
        return SimulatedFleet(
            self._events, delays, seed=seed, finished=self._record_group_end, changed=self._decide
        )

    @property
    def outstanding(self) -> list[Attempt]:
        """Dispatched and not settled."""
        return list(self._outstanding.values())

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._events.now_seconds

    def schedule_at(self, time: float, change: Callable[[], object]) -> None:
        """Call `change` at `time`."""
        self._events.schedule_at(time, change)

    def run(self, *, steps: int, max_events: int = 1_000_000) -> Report:
        """Go on until the trainer is at step `steps`.

        Raises DeadlockError when nothing can happen any more, or after `max_events` events.
        """
        for _ in range(max_events):
            if self.step >= steps:
                return self.report
            if self._events.next_time is None:
                raise DeadlockError(
                    f"nothing can happen any more at step {self.step}, waiting for {self._waiting}"
                )
            self._events.step()
        raise DeadlockError(
            f"at step {self.step} after {max_events} events, waiting for {self._waiting}"
        )

    def _decide(self) -> None:
        """Follow the schedule: dispatch, then make the next step or wait."""
        self._book()
        while True:
            state = self._state()
            if num_dispatches := self._schedule.dispatch(state):
                for _ in range(num_dispatches):
                    self._dispatch()
                self.fleet.claim()
                state = self._state()
            if self._training:
                return
            decision = self._schedule.next_batch(state)
            if isinstance(decision, Wait):
                self._waiting = decision.reason
                return
            batch = [self._outstanding[sequence] for sequence in decision.sequences]
            if all(attempt.task.filtered for attempt in batch):
                self._settle(batch)
            else:
                self._train(batch)

    def _state(self) -> PipelineState:
        return PipelineState(
            step=self.step,
            steps_since_start=self._steps_since_start,
            acknowledged=self.fleet.oldest_member_step(),
            groups=tuple([attempt.group() for attempt in self._outstanding.values()]),
            enough=self._enough(),
        )

    def _enough(self) -> int | None:
        if not self._fresh:
            return None
        typical = median(self._durations) if self._durations else self._trainer.step
        # Most decisions follow news of weights, with the same lifetimes as the last one.
        if self._enough_known[:2] != (len(self.report.lifetimes), typical):
            recent = self.report.lifetimes[-RECENT_STEPS * self._schedule.groups_per_step :]
            enough = enough_groups(
                [seconds / typical for _, seconds in recent],
                max_staleness=self._schedule.max_staleness,
                groups_per_step=self._schedule.groups_per_step,
            )
            self._enough_known = (len(self.report.lifetimes), typical, enough)
        return self._enough_known[2]

    def _dispatch(self) -> None:
        task = self._workload.task(self._next_task())
        attempt = Attempt(sequence=self.report.dispatched, task=task, remaining=list(task.lengths))
        self._outstanding[attempt.sequence] = attempt
        self.fleet.queue.append(attempt)
        self.report.dispatched += 1

    def _next_task(self) -> int:
        self._num_tasks += 1
        return self._num_tasks - 1

    def _train(self, batch: list[Attempt]) -> None:
        self._training = batch
        self._waiting = None
        for attempt in batch:
            assert attempt.oldest is not None
            self.report.staleness[self.step - attempt.oldest] += 1
        tokens = sum(sum(attempt.task.lengths) for attempt in batch)
        duration = self._trainer.step + self._trainer.per_token * tokens
        duration *= self._rng.uniform(1 - self._trainer.spread, 1 + self._trainer.spread)
        if self._trainer.per_token:
            self._durations.append(duration)
        self._events.schedule_after(duration, lambda: self._end_step(batch))

    def _end_step(self, batch: list[Attempt]) -> None:
        self._training = []
        self._settle(batch)
        self.step += 1
        self._steps_since_start += 1
        self.report.step_times.append(self.now)
        self._publish()
        self._decide()

    def _publish(self) -> None:
        if self._schedule.publishes(self.step):
            self.fleet.publish(self.step)

    def _settle(self, batch: list[Attempt]) -> None:
        """Return the credit of a batch."""
        for attempt in batch:
            del self._outstanding[attempt.sequence]
            self.report.groups["filtered" if attempt.task.filtered else "used"] += 1

    def _record_group_end(self, attempt: Attempt) -> None:
        assert attempt.started_at is not None
        self.report.lifetimes.append((max(attempt.task.lengths), self.now - attempt.started_at))
        if not self._training:
            self._decide()

    def _book(self) -> None:
        """Count the time since the last call as waiting for the present reason, if there is one."""
        elapsed = self.now - self._booked_until
        self._booked_until = self.now
        if self._waiting is not None:
            self.report.wait_seconds[self._waiting] += elapsed
