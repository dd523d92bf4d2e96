"""Policies that set the number of generators in a simulated run: none, the real decision function,
a queue-length HPA."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from rollcast.autoscaler.decision import Decision, decide
from rollcast.autoscaler.decision_memory import Memory, ReplicaLimits
from rollcast.autoscaler.totals import TREND_SECONDS, Totals, rates
from rollcast.config.autoscaler import Autoscaler
from rollcast.simulation.generator import EngineSpeed
from testkit.autoscaler.scaled_fleet import ScaledFleet
from testkit.autoscaler.scenarios import GROUPS_PER_STEP, LAG, ROLLOUTS_PER_GROUP


@dataclass
class Rollcast:
    """The real decision function on totals of the simulated run, applied immediately (mode
    controller).
    """

    fleet: ScaledFleet
    settings: Autoscaler
    engine: EngineSpeed
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    apply: Callable[[int], None] | None = None
    """Receives the number instead of the fleet, as an HPA does."""

    def __post_init__(self) -> None:
        self._history: deque[Totals] = deque()
        self._memory = Memory(target=self.fleet.pods)
        self._limits = ReplicaLimits(
            slots=self.engine.slots,
            rollouts_per_group=ROLLOUTS_PER_GROUP,
            window_groups=LAG * GROUPS_PER_STEP,
        )

    def restart(self) -> None:
        """A new process: all measurements are lost."""
        self._history.clear()
        self._memory = Memory.make_initial(self.fleet.pods, self.fleet.pipeline.now)

    def __call__(self) -> None:
        self._history.append(self._measure())
        while self._history[0].at < self._history[-1].at - max(
            TREND_SECONDS, self.settings.window_seconds
        ):
            self._history.popleft()
        window_rates = rates(tuple(self._history), self.settings.window_seconds)
        measured = window_rates or "too little was measured yet"
        now_seconds = self.fleet.pipeline.now
        decision = decide(now_seconds, measured, self._memory, self._limits, self.settings)
        self._memory = decision.memory
        self.decisions.append((now_seconds, decision))
        (self.apply or self.fleet.resize)(decision.target)

    def _measure(self) -> Totals:
        pipeline, last = self.fleet.pipeline, self._history[-1] if self._history else None
        report = pipeline.read()
        members = pipeline.fleet.members()
        now_seconds = pipeline.now
        passed = now_seconds - last.at if last else 0.0
        rose = last is None or len(members) > last.joined
        running = sum(generator.running for generator in members) * passed
        return Totals(
            at=now_seconds,
            batch_wait=report.wait_seconds["batch"],
            straggler_wait=report.wait_seconds["straggler"],
            redis_wait=0.0,
            consumed_tokens=report.consumed_tokens,
            steps=float(pipeline.step),
            sampled_tokens=sum(
                generator.tokens for generator in pipeline.fleet.generators.values()
            ),
            watched_seconds=(last.watched_seconds if last else 0.0) + len(members) * passed,
            running_seconds=(last.running_seconds if last else 0.0) + running,
            joined_seconds=(last.joined_seconds if last else 0.0) + len(members) * passed,
            joined=len(members),
            undisturbed_since=now_seconds
            if rose or last is None or pipeline.step <= LAG
            else last.undisturbed_since,
            filled_since=now_seconds if last is None or pipeline.step <= LAG else last.filled_since,
            outstanding=len(pipeline.outstanding),
            mean_tokens=report.mean_tokens,
        )


@dataclass
class Hpa:
    """A HorizontalPodAutoscaler with one AverageValue metric, applied every 15 s.

    desired = ceil(metric / target), unless it is within the tolerance of the present number; a fall
    only to the highest that was desired in the stabilization window, one pod each 120 s: the
    behavior that the autoscaler itself has.
    """

    fleet: ScaledFleet
    metric: Callable[[], float]
    target: float
    min_pods: int
    max_pods: int
    tolerance: float = 0.1
    stabilization_seconds: float = 600.0
    period_seconds: float = 120.0
    pods_per_period: int = 1

    def __post_init__(self) -> None:
        self._desired: deque[tuple[float, int]] = deque()
        self._falls: deque[float] = deque()

    def __call__(self) -> None:
        now_seconds, present = self.fleet.pipeline.now, self.fleet.pods
        ratio = self.metric() / (self.target * present)
        desired = (
            present if abs(ratio - 1.0) <= self.tolerance else math.ceil(ratio * present - 1e-9)
        )
        desired = min(max(desired, self.min_pods), self.max_pods)
        self._desired.append((now_seconds, desired))
        while self._desired[0][0] < now_seconds - self.stabilization_seconds:
            self._desired.popleft()
        while self._falls and self._falls[0] <= now_seconds - self.period_seconds:
            self._falls.popleft()
        if desired < present:
            highest = max(number for _, number in self._desired)
            allowed = present - (self.pods_per_period - len(self._falls))
            desired = min(present, max(highest, allowed, desired))
            self._falls.extend([now_seconds] * (present - desired))
        self.fleet.resize(desired)


def waiting_tasks(fleet: ScaledFleet) -> float:
    """Unclaimed tasks: the lag of the stream."""
    return float(len(fleet.pipeline.fleet.queue))


def unfinished_tasks(fleet: ScaledFleet) -> float:
    """Tasks waiting or claimed: what a redis-streams trigger counts by lag and pending entries
    together.
    """
    return float(sum(not attempt.ready for attempt in fleet.pipeline.outstanding))
