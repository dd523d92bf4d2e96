"""A fleet of generators that changes while the run goes on: pods that start up, join, drain and
cost devices.

    asked for --(start-up)--> joins --> works --> drains: hands back immediately, its device is
        |                                         held a little longer
        `--> no longer wanted before it joined: gone immediately

A pod costs a device from when it is asked for until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcast.simulation.generator import EngineSpeed, SimulatedGenerator
from testkit.simulation.faulty_pipeline import FaultyPipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTimes:
    """Durations in seconds."""

    start_up: float = 180.0
    """Time from asking for a pod until its generator begins to join."""
    drain: float = 30.0
    """Time for which a pod that leaves holds its device."""


class ScaledFleet:
    """The generators of a pipeline, their number set from outside."""

    def __init__(
        self, pipeline: FaultyPipeline, engine: EngineSpeed, times: PodTimes | None = None
    ) -> None:
        self.pipeline = pipeline
        self.sizes: list[tuple[float, int]] = []
        """(time, pods) whenever the number of pods was changed."""
        self._engine = engine
        self._times = times or PodTimes()
        self._starting: list[int] = []
        self._orders = 0
        self._device_seconds = 0.0
        self._draining_seconds = 0.0
        self._counted_until = pipeline.now
        self._record()

    @property
    def working(self) -> list[SimulatedGenerator]:
        """The generators that are alive: members, or about to join."""
        return [
            generator for generator in self.pipeline.fleet.generators.values() if generator.alive
        ]

    @property
    def pods(self) -> int:
        """Working and starting."""
        return len(self.working) + len(self._starting)

    @property
    def generator_seconds(self) -> float:
        """Device-seconds of all pods until now, times the devices of one."""
        self._count()
        return self._device_seconds + self._draining_seconds

    def resize(self, pods: int) -> None:
        """Start or drain pods; of the working ones those with the fewest tokens in flight go."""
        if pods == self.pods:
            return
        self._count()
        while self.pods < pods:
            self._order()
        while self.pods > pods and self._starting:
            self._starting.pop()
        if self.pods > pods:
            self.pipeline.read()
            idlest = sorted(self.working, key=lambda generator: generator.inflight_tokens)
            for generator in idlest[: self.pods - pods]:
                self.pipeline.fleet.drain(generator.name)
                self._draining_seconds += self._times.drain
        self._record()

    def every(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` at this interval from now on."""

        def turn() -> None:
            act()
            self.pipeline.schedule_at(self.pipeline.now + seconds, turn)

        self.pipeline.schedule_at(self.pipeline.now + seconds, turn)

    def _order(self) -> None:
        self._orders += 1
        order = self._orders
        self._starting.append(order)

        def join_fleet() -> None:
            if order in self._starting:
                self._count()
                self._starting.remove(order)
                self.pipeline.fleet.join(self._engine)

        self.pipeline.schedule_at(self.pipeline.now + self._times.start_up, join_fleet)

    def _count(self) -> None:
        now_seconds = self.pipeline.now
        self._device_seconds += self.pods * (now_seconds - self._counted_until)
        self._counted_until = now_seconds

    def _record(self) -> None:
        self.sizes.append((self.pipeline.now, self.pods))
