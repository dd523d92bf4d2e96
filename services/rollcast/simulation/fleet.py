"""The generators together: their queue, the weights they receive, and their membership.

    join --> waits for its snapshot and for the end of a publish --> member

One publish at a time; a slow one coalesces to the newest step. Members change between publishes.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rollcast.simulation.events import Events
from rollcast.simulation.generator import Attempt, EngineSpeed, SimulatedGenerator


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long the fleet's changes take, in seconds."""

    publish: float = 0.05
    """Time from the start of a publish until the quickest generator samples with the weights; the
    slowest takes twice."""
    join: float = 0.1
    """A joiner's first snapshot."""


class SimulatedFleet:
    """Generators and their queue."""

    def __init__(
        self,
        events: Events,
        delays: Delays,
        *,
        seed: int,
        finished: Callable[[Attempt], None],
        changed: Callable[[], None],
    ) -> None:
        """`finished` and `changed` (weights or membership) are the trainer's callbacks."""
        self.generators: dict[int, SimulatedGenerator] = {}
        self.queue: deque[Attempt] = deque()
        self._events = events
        self._delays = delays
        self._rng = random.Random(seed)
        self._finished = finished
        self._changed = changed
        self._published = 0
        self._publishing = 0
        self._newest = 0
        self._receiving: set[SimulatedGenerator] = set()
        self._joiners: list[SimulatedGenerator] = []

    def members(self) -> list[SimulatedGenerator]:
        """Return the generators that belong to the weight epoch."""
        return [generator for generator in self.generators.values() if generator.member]

    def oldest_member_step(self) -> int | None:
        """Return the oldest step in use by a member; None without members."""
        return min((generator.step for generator in self.members()), default=None)

    def join(self, engine: EngineSpeed) -> int:
        """Start a generator and return its name."""
        generator = SimulatedGenerator(
            name=len(self.generators), engine=engine, step=self._published
        )
        self.generators[generator.name] = generator
        self._begin_join(generator)
        return generator.name

    def publish(self, step: int) -> None:
        """Send the weights of `step` to the members, after a publish that is under way."""
        self._newest = step
        if not self._receiving:
            self._send()

    def claim(self) -> None:
        """Members claim what fits, the emptiest first."""
        claimants = self._claimants()
        while self.queue and claimants:
            generator = min(claimants, key=lambda member: member.running / member.engine.slots)
            if not generator.has_room(self.queue[0]):
                return
            attempt = self.queue.popleft()
            generator.start(attempt, self._events.now_seconds)
            attempt.recorded = attempt.oldest
            self._watch(generator)

    def _claimants(self) -> list[SimulatedGenerator]:
        """Members that may claim; not looked for while the queue is empty."""
        return [member for member in self.members() if member.alive] if self.queue else []

    def _watch(self, generator: SimulatedGenerator) -> None:
        end = generator.next_end()
        changes = generator.changes
        if end is not None:
            self._events.schedule_at(end, lambda: self._rollout_ends(generator, changes))

    def _rollout_ends(self, generator: SimulatedGenerator, changes: int) -> None:
        if generator.changes != changes:
            return
        attempt = generator.finish_next(self._events.now_seconds)
        self._watch(generator)
        if attempt is not None:
            attempt.ready = True
            attempt.recorded = attempt.oldest
            self._finished(attempt)
        self.claim()

    def _begin_join(self, generator: SimulatedGenerator) -> None:
        def snapshot_arrived() -> None:
            self._joiners.append(generator)
            if not self._receiving:
                self._admit()
            self._claim_and_report()

        self._schedule(generator, self._delays.join, snapshot_arrived)

    def _schedule(
        self, generator: SimulatedGenerator, seconds: float, action: Callable[[], None]
    ) -> None:
        """Let `action` of a generator take place in `seconds`."""
        self._events.schedule_after(seconds, action)

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
        self._receiving = set(self.members())
        for generator in self.members():
            delay = self._delays.publish * self._rng.uniform(1.0, 2.0)
            self._schedule(generator, delay, partial(self._receives, generator, step))
        self._publishing = step
        self._publish_ends()

    def _receives(self, generator: SimulatedGenerator, step: int) -> None:
        generator.step = step
        for attempt in generator.attempts.values():
            attempt.recorded = attempt.oldest
        self._receiving.discard(generator)
        self._publish_ends()
        self._claim_and_report()

    def _publish_ends(self) -> None:
        """If no member is still receiving, admit the joiners and send newer weights if there are
        any.
        """
        if not self._receiving:
            self._published = self._publishing
            self._admit()
            if self._newest > self._published:
                self._send()
