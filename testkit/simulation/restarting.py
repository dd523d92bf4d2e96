"""The simulated pipeline with a trainer that dies and comes back at its last checkpoint.

in training --> settled: used | filtered --> held until a checkpoint has it
                                                   | restart: ready again
of weights that were lost: settled as lost; the task is dispatched again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollcast.simulation.generator import Attempt
from rollcast.simulation.pipeline import Pipeline, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """What a death of the trainer costs."""

    seconds: float = 5.0
    """Time from its death until it is back."""
    checkpoint_every: int = 1
    """Optimizer steps."""


class RestartingPipeline(Pipeline):
    """`step` and the report's history are those of the surviving history."""

    def __init__(self, *, restarts: Restarts | None = None, **settings: Any) -> None:
        """`settings`: of Pipeline."""
        self._restarts = restarts or Restarts()
        self._checkpoint = 0
        self._held: list[Attempt] = []
        self._down = False
        super().__init__(**settings)

    def run_until(self, time: float) -> Report:
        """Go on until `time`."""
        self._events.at(time, self._book)
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
        self._events.after(self._restarts.seconds, self._resume)

    def _resume(self) -> None:
        self._down = False
        self.step, self._steps_since_start = self._checkpoint, 0
        undone = [number for step, number in self.report.history if step > self._checkpoint]
        self.report.history = self.report.history[: len(self.report.history) - len(undone)]
        for attempt in self._held:
            self._outstanding[attempt.sequence] = attempt
            undone.remove(attempt.task.number)
        self._held.clear()
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
        else:
            super()._decide()

    def _trained(self, batch: list[Attempt]) -> None:
        if batch is self._training:  # else the trainer died in the middle of it
            super()._trained(batch)

    def _publish(self) -> None:
        if self.step % self._restarts.checkpoint_every == 0:
            self._checkpoint = self.step
            self._held.clear()
        super()._publish()

    def _settle(self, batch: list[Attempt]) -> None:
        """Keep what would be worth something again after a restart."""
        super()._settle(batch)
        self._held += [item for item in batch if item.newest is not None and item.newest <= self._checkpoint]
