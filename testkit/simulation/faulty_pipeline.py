"""The simulated pipeline with generators that die and a trainer that comes back at its last
checkpoint.

in training --> settled: used | filtered --> held until a checkpoint has it
                                                   | restart: ready again
of weights that were lost: settled as lost; the task is dispatched again
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import Attempt
from rollcast.simulation.pipeline import Pipeline, Report
from testkit.simulation.faulty_fleet import FaultyFleet


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTimes:
    """Cost of the death of a trainer and of a generator."""

    restart: float = 5.0
    """Seconds from the trainer's death until it is back."""
    checkpoint_every: int = 1
    """Optimizer steps."""
    detect: float = 2.0
    """Seconds from a generator's death until it is fenced."""


@dataclass(slots=True)
class FaultyReport(Report):
    """Two more outcomes of groups, lost (generator killed, or weights of lost steps) and given_up
    (by the gate), whose tasks are dispatched again; and one more reason to wait, "restart"."""

    history: list[tuple[int, int]] = field(default_factory=list)
    """(step it was a part of, task number) of every used or filtered group in the surviving
    history."""
    most_outstanding: int = 0
    """Most groups ever dispatched and not settled."""
    consumed_tokens: float = 0.0
    """Tokens of the used and filtered groups."""
    mean_tokens: float | None = None
    """Mean length of the rollouts of the newest batch; None before the first."""


class FaultyPipeline(Pipeline):
    """`step` and the report's history are those of the surviving history."""

    fleet: FaultyFleet
    report: FaultyReport

    def __init__(
        self, *, faults: FaultTimes | None = None, claims_seen_late: bool = False, **settings: Any
    ) -> None:
        """`settings`: of Pipeline. `claims_seen_late`: see FaultyFleet."""
        self._faults = faults or FaultTimes()
        self._claims_seen_late = claims_seen_late
        self._checkpoint = 0
        self._held_attempts: list[Attempt] = []
        self._redo: deque[int] = deque()
        self._down = False
        super().__init__(**settings)

    def _make_report(self) -> FaultyReport:
        return FaultyReport()

    def _make_fleet(self, delays: Delays, seed: int) -> FaultyFleet:
        return FaultyFleet(
            self._events,
            delays,
            seed=seed,
            detect_seconds=self._faults.detect,
            claims_seen_late=self._claims_seen_late,
            finished=self._record_group_end,
            lost=self._lost,
            changed=self._decide,
        )

    @property
    def redo(self) -> list[int]:
        """Numbers of the tasks that will be dispatched again."""
        return list(self._redo)

    def read(self) -> FaultyReport:
        """Bring waits and tokens up to now."""
        self._book()
        for generator in self.fleet.generators.values():
            if generator.alive:
                generator.advance(self.now)
        return self.report

    def run(self, *, steps: int, max_events: int = 1_000_000) -> FaultyReport:
        super().run(steps=steps, max_events=max_events)
        return self.report

    def run_until(self, time: float) -> FaultyReport:
        """Go on until `time`."""
        self._events.schedule_at(time, self._book)
        while (due := self._events.next_time) is not None and due <= time:
            self._events.step()
        return self.read()

    def restart_trainer(self) -> None:
        """Kill the trainer; it comes back at its last checkpoint."""
        if self._down:
            return
        self._book()
        self._down, self._waiting = True, "restart"
        self._training = []
        self._events.schedule_after(self._faults.restart, self._resume)

    def _resume(self) -> None:
        self._down = False
        self.step, self._steps_since_start = self._checkpoint, 0
        undone = [number for step, number in self.report.history if step > self._checkpoint]
        self.report.history = self.report.history[: len(self.report.history) - len(undone)]
        for attempt in self._held_attempts:
            self._outstanding[attempt.sequence] = attempt
            undone.remove(attempt.task.number)
        self._held_attempts.clear()
        self._redo.extend(undone)
        for attempt in list(self._outstanding.values()):
            newest = attempt.newest if attempt.owner is None else attempt.owner.step
            if newest is not None and newest > self.step:
                self._abandon(attempt, "lost")
        self.fleet.restart(self.step)
        self._decide()

    def _decide(self) -> None:
        if self._down:
            self._book()
            return
        if not self._training:
            for sequence in self._schedule.unusable(self._state()):
                self._abandon(self._outstanding[sequence], "given_up")
        super()._decide()

    def _next_task(self) -> int:
        return self._redo.popleft() if self._redo else super()._next_task()

    def _abandon(self, attempt: Attempt, outcome: str) -> None:
        """Return the credit of a group that will never be used."""
        del self._outstanding[attempt.sequence]
        if not attempt.ready:
            self.fleet.stop(attempt)
        self.report.groups[outcome] += 1
        self._redo.append(attempt.task.number)

    def _lost(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            del self._outstanding[attempt.sequence]
            self.report.groups["lost"] += 1
            self._redo.append(attempt.task.number)
        self._decide()

    def _dispatch(self) -> None:
        super()._dispatch()
        self.report.most_outstanding = max(self.report.most_outstanding, len(self._outstanding))

    def _train(self, batch: list[Attempt]) -> None:
        self.report.mean_tokens = fmean(
            tokens for attempt in batch for tokens in attempt.task.lengths
        )
        super()._train(batch)

    def _end_step(self, batch: list[Attempt]) -> None:
        if batch is self._training:  # else the trainer died in the middle of it
            super()._end_step(batch)

    def _publish(self) -> None:
        if self.step % self._faults.checkpoint_every == 0:
            self._checkpoint = self.step
            self._held_attempts.clear()
        super()._publish()

    def _settle(self, batch: list[Attempt]) -> None:
        """Keep what would be worth something again after a restart."""
        super()._settle(batch)
        for attempt in batch:
            self.report.consumed_tokens += sum(attempt.task.lengths)
            self.report.history.append((self.step + 1, attempt.task.number))
        self._held_attempts += [
            item for item in batch if item.newest is not None and item.newest <= self._checkpoint
        ]
