"""The generators together: their queue, the weights they receive, and their membership.

    join --> waits for its snapshot and for the end of a publish --> member --> drain: hands back, gone
                                                                          +--> kill: silent until fenced

One publish at a time; a slow one coalesces to the newest step. Members change between publishes.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rollcast.simulation.events import Events
from rollcast.simulation.generator import Attempt, EngineSpeed, SimulatedGenerator


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long the fleet's changes take, in seconds."""

    publish: float = 0.05
    """Time from the start of a publish until the quickest generator samples with the weights; the slowest takes
    twice."""
    join: float = 0.1
    """A joiner's first snapshot."""
    detect: float = 2.0
    """Time from a generator's death until it is fenced."""


class SimulatedFleet:
    """Generators and their queue."""

    def __init__(
        self,
        events: Events,
        delays: Delays,
        *,
        seed: int,
        claims_seen_late: bool,
        finished: Callable[[Attempt], None],
        lost: Callable[[list[Attempt]], None],
        changed: Callable[[], None],
    ) -> None:
        """`finished`, `lost` and `changed` (weights or membership) are the trainer's callbacks.

        With `claims_seen_late` the trainer learns of a claim only by the generator's next acknowledgement.
        """
        self.generators: dict[int, SimulatedGenerator] = {}
        self.queue: deque[Attempt] = deque()
        self._events = events
        self._delays = delays
        self._rng = random.Random(seed)
        self._claims_seen_late = claims_seen_late
        self._finished = finished
        self._lost = lost
        self._changed = changed
        self._published = 0
        self._publishing = 0
        self._newest = 0
        self._receiving: set[SimulatedGenerator] = set()
        self._joiners: list[SimulatedGenerator] = []
        self._epoch = 0

    def members(self) -> list[SimulatedGenerator]:
        """Return the members, including dead ones that are not yet fenced."""
        return [generator for generator in self.generators.values() if generator.member]

    def acknowledged(self) -> int | None:
        """Return the oldest step in use by a member; None without members."""
        return min((generator.step for generator in self.members()), default=None)

    def join(self, engine: EngineSpeed) -> int:
        """Start a generator and return its name."""
        generator = SimulatedGenerator(name=len(self.generators), engine=engine, step=self._published)
        self.generators[generator.name] = generator
        self._begin_join(generator)
        return generator.name

    def drain(self, name: int) -> None:
        """Take a generator away in order: its groups go back to the queue as partial rollouts."""
        generator = self.generators[name]
        if not generator.alive:
            return
        for attempt in list(generator.attempts.values()):
            generator.stop(attempt, self._events.now)
            attempt.recorded = attempt.oldest
            self.queue.appendleft(attempt)
        generator.alive = False
        self._remove(generator)
        self._claim_and_report()

    def kill(self, name: int) -> None:
        """Kill a generator: it stays a member until it is fenced."""
        generator = self.generators[name]
        if generator.alive:
            generator.advance(self._events.now)
            generator.alive = False
            self._events.after(self._delays.detect, lambda: self._fence(generator))

    def publish(self, step: int) -> None:
        """Send the weights of `step` to the members, after a publish that is under way."""
        self._newest = step
        if not self._receiving:
            self._send()

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
        """Members claim what fits, the emptiest first."""
        able = [generator for generator in self.generators.values() if generator.member and generator.alive]
        while self.queue and able:
            generator = min(able, key=lambda member: member.running / member.engine.slots)
            if not generator.has_room(self.queue[0]):
                return
            attempt = self.queue.popleft()
            generator.start(attempt, self._events.now)
            if not self._claims_seen_late:
                attempt.recorded = attempt.oldest
            self._watch(generator)

    def stop(self, attempt: Attempt) -> None:
        """Give up an attempt that waits or runs."""
        generator = attempt.owner
        if generator is None:
            self.queue.remove(attempt)
        else:
            generator.stop(attempt, self._events.now)
            self._watch(generator)

    def _watch(self, generator: SimulatedGenerator) -> None:
        end = generator.next_end()
        changes = generator.changes
        if end is not None:
            self._events.at(end, lambda: self._rollout_ends(generator, changes))

    def _rollout_ends(self, generator: SimulatedGenerator, changes: int) -> None:
        if not generator.alive or generator.changes != changes:
            return
        attempt = generator.finish_next(self._events.now)
        self._watch(generator)
        if attempt is not None:
            attempt.ready = True
            attempt.recorded = attempt.oldest
            self._finished(attempt)
        self.claim()

    def _fence(self, generator: SimulatedGenerator) -> None:
        attempts = list(generator.attempts.values())
        for attempt in attempts:
            generator.stop(attempt, self._events.now)
        self._remove(generator)
        self._lost(attempts)

    def _remove(self, generator: SimulatedGenerator) -> None:
        generator.member = False
        if generator in self._joiners:
            self._joiners.remove(generator)
        if generator in self._receiving:
            self._receiving.remove(generator)
            self._publish_ends()

    def _begin_join(self, generator: SimulatedGenerator) -> None:
        epoch = self._epoch

        def snapshot_arrived() -> None:
            if generator.alive and epoch == self._epoch:
                self._joiners.append(generator)
                if not self._receiving:
                    self._admit()
                self._claim_and_report()

        self._events.after(self._delays.join, snapshot_arrived)

    def _claim_and_report(self) -> None:
        self.claim()
        self._changed()

    def _admit(self) -> None:
        for generator in self._joiners:
            generator.member = True
            generator.step = self._published
        self._joiners.clear()

    def _send(self) -> None:
        step = self._newest
        epoch = self._epoch
        self._receiving = set(self.members())
        for generator in self.members():
            delay = self._delays.publish * self._rng.uniform(1.0, 2.0)
            self._events.after(delay, lambda generator=generator: self._receives(generator, step, epoch))  # type: ignore[misc]
        self._publishing = step
        self._publish_ends()

    def _receives(self, generator: SimulatedGenerator, step: int, epoch: int) -> None:
        if not generator.alive or epoch != self._epoch:
            return
        generator.step = step
        for attempt in generator.attempts.values():
            attempt.recorded = attempt.oldest
        self._receiving.discard(generator)
        self._publish_ends()
        self._claim_and_report()

    def _publish_ends(self) -> None:
        """If no member is still receiving, admit the joiners and send newer weights if there are any."""
        if not self._receiving:
            self._published = self._publishing
            self._admit()
            if self._newest > self._published:
                self._send()
