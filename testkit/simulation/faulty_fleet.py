"""A simulated fleet whose generators are drained and killed, and which joins a new incarnation of
the trainer.

member --> drain: hands back, gone
   +-----> kill: silent until fenced; what it held is lost
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollcast.simulation.fleet import SimulatedFleet
from rollcast.simulation.generator import Attempt, SimulatedGenerator


class FaultyFleet(SimulatedFleet):
    """`members` holds dead generators until they are fenced."""

    def __init__(
        self,
        *arguments: Any,
        detect_seconds: float,
        claims_seen_late: bool,
        lost: Callable[[list[Attempt]], None],
        **settings: Any,
    ) -> None:
        """`lost`: the trainer's callback. `arguments` and `settings`: of SimulatedFleet.

        With `claims_seen_late` the trainer learns of a claim only by the generator's next
        acknowledgement.
        """
        super().__init__(*arguments, **settings)
        self._detect_seconds = detect_seconds
        self._claims_seen_late = claims_seen_late
        self._lost = lost
        self._epoch = 0

    def drain(self, name: int) -> None:
        """Take a generator away in order: its groups go back to the queue as partial rollouts."""
        generator = self.generators[name]
        if not generator.alive:
            return
        for attempt in list(generator.attempts.values()):
            generator.stop(attempt, self._events.now_seconds)
            attempt.recorded = attempt.oldest
            self.queue.appendleft(attempt)
        generator.alive = False
        self._remove(generator)
        self._claim_and_report()

    def kill(self, name: int) -> None:
        """Kill a generator: it stays a member until it is fenced."""
        generator = self.generators[name]
        if generator.alive:
            generator.advance(self._events.now_seconds)
            generator.alive = False
            generator.changes += 1  # the end of a rollout that is due is not seen any more
            self._events.schedule_after(self._detect_seconds, lambda: self._fence(generator))

    def restart(self, step: int) -> None:
        """A new incarnation starts at `step`: every generator has to join it."""
        self._epoch += 1
        self._published = step
        self._newest = step
        self._receiving.clear()
        self._joiners.clear()
        for generator in self.generators.values():
            generator.member = False
            if generator.alive:
                self._begin_join(generator)

    def claim(self) -> None:
        if not self._claims_seen_late:
            super().claim()
            return
        recorded_steps = [(attempt, attempt.recorded) for attempt in self.queue]
        super().claim()
        for attempt, recorded in recorded_steps:
            attempt.recorded = recorded

    def stop(self, attempt: Attempt) -> None:
        """Give up an attempt that waits or runs."""
        generator = attempt.owner
        if generator is None:
            self.queue.remove(attempt)
        else:
            generator.stop(attempt, self._events.now_seconds)
            self._watch(generator)

    def _schedule(
        self, generator: SimulatedGenerator, seconds: float, action: Callable[[], None]
    ) -> None:
        """Nothing comes of it if the generator is dead by then,
        or the trainer another incarnation.
        """
        epoch = self._epoch

        def act() -> None:
            if generator.alive and epoch == self._epoch:
                action()

        super()._schedule(generator, seconds, act)

    def _fence(self, generator: SimulatedGenerator) -> None:
        attempts = list(generator.attempts.values())
        for attempt in attempts:
            generator.stop(attempt, self._events.now_seconds)
        self._remove(generator)
        self._lost(attempts)

    def _remove(self, generator: SimulatedGenerator) -> None:
        generator.member = False
        if generator in self._joiners:
            self._joiners.remove(generator)
        if generator in self._receiving:
            self._receiving.remove(generator)
            self._publish_ends()
