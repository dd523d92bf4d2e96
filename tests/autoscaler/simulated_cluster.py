"""A simulated cluster around a simulated run: what asks for pods, grants them, takes them away, and
what can be read.

The autoscaler's own loop runs against it unchanged: it reads what real pages would say, and speaks
to a Deployment on whose pods a quota, a broken image or spot nodes decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from rollcast.autoscaler.collector import FleetReading
from rollcast.telemetry import generator_metrics, trainer_metrics
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import Sample, SourceAway
from testkit.autoscaler.scaled_fleet import ScaledFleet
from testkit.simulation.faulty_pipeline import FaultyPipeline

RUN = "demo"


class SimulatedCluster:
    """The generators' Deployment, as the autoscaler's client and an HPA see it."""

    def __init__(self, fleet: ScaledFleet) -> None:
        self.fleet = fleet
        self.requested_replicas = fleet.pods
        """The Deployment's `spec.replicas`."""
        self.granted = math.inf
        """Pods that the quota admits."""
        self.events: list[tuple[float, str, str]] = []
        """(time, reason, message) of the Deployment."""
        self.asked_for: list[tuple[float, int]] = [(fleet.pipeline.now, self.requested_replicas)]
        """(time, replicas) after each change of the scale."""

    def replicas(self) -> int:
        return self.requested_replicas

    @property
    def pipeline(self) -> FaultyPipeline:
        return self.fleet.pipeline

    @property
    def pods(self) -> int:
        """`status.replicas`."""
        return self.fleet.pods

    def resize(self, pods: int) -> None:
        """Change the scale as an HPA does."""
        self.scale(pods)

    def pods_there(self) -> int:
        return self.fleet.pods

    def scale(self, replicas: int) -> None:
        if replicas != self.requested_replicas:
            self.requested_replicas = replicas
            self.asked_for.append((self.fleet.pipeline.now, replicas))
        self.settle()

    def settle(self) -> None:
        """Act as the Deployment's controller: as many pods as are asked for, and granted."""
        self.fleet.resize(round(min(self.requested_replicas, self.granted)))

    def take_away(self, pods: int) -> None:
        """Spot nodes go: the oldest pods die immediately, and others replace them."""
        for generator in self.fleet.working[:pods]:
            self.fleet.pipeline.fleet.kill(generator.name)
        self.settle()

    def rivals(self) -> list[str]:
        return []

    def prefer_idlest(self, inflight_tokens: Mapping[str, float]) -> int:
        return 0  # the simulated fleet lets the idlest go by itself

    def jobs_are_complete(self, selector: str) -> bool | None:
        return False

    def tell(self, reason: str, message: str, *, warning: bool) -> None:
        self.events.append((self.fleet.pipeline.now, reason, message))


class SimulatedPages:
    """Metrics pages of a simulated run; `away` = why they cannot be read now, None = they can."""

    def __init__(self, fleet: ScaledFleet) -> None:
        self.skipped: Counter[str] = Counter()
        self.away: str | None = None
        self._fleet = fleet
        self._incarnation = 1
        self._began_at_step = 0
        self._earlier_counters: dict[str, float] = {}
        """Counters when this incarnation began."""

    def restart_trainer(self) -> None:
        """The trainer's process is another: its counters begin at 0."""
        self._incarnation += 1
        self._began_at_step = self._fleet.pipeline.step
        self._earlier_counters = self._counters()

    def read(self) -> FleetReading:
        if self.away is not None:
            raise SourceAway(self.away)
        pipeline = self._fleet.pipeline
        counters = self._counters()
        waits = [
            _sample(
                trainer_metrics.TRAINER_WAIT,
                counters[reason] - self._earlier_counters.get(reason, 0.0),
                **{"for": reason},
            )
            for reason in ("batch", "straggler", "weights")
        ]
        mean = pipeline.report.mean_tokens
        trainer = (
            *waits,
            *([] if mean is None else [_sample(trainer_metrics.COMPLETION_TOKENS_MEAN, mean)]),
            _sample(
                trainer_metrics.CONSUMED_TOKENS,
                counters["consumed"] - self._earlier_counters.get("consumed", 0.0),
            ),
            _sample(trainer_metrics.TRAINER_STEP, pipeline.step),
            _sample(trainer_metrics.INCARNATION, self._incarnation),
            _sample(
                trainer_metrics.INCARNATION_START,
                self._began_at_step,
                incarnation=str(self._incarnation),
            ),
            _sample(trainer_metrics.GENERATORS, len(pipeline.fleet.members()), state="joined"),
            _sample(trainer_metrics.GROUPS_OUTSTANDING, len(pipeline.outstanding)),
        )
        generators: dict[str, tuple[Sample, ...]] = {
            f"pod-{generator.name}": (
                _sample(generator_metrics.SAMPLED_TOKENS, generator.tokens),
                _sample(generator_metrics.RUNNING_ROLLOUTS, generator.running),
                _sample(generator_metrics.INFLIGHT_TOKENS, generator.inflight_tokens),
            )
            for generator in self._fleet.working
        }
        return FleetReading(trainer, generators)

    def close(self) -> None:
        """Nothing is open."""

    def _counters(self) -> dict[str, float]:
        report = self._fleet.pipeline.read()
        waits = {
            reason: report.wait_seconds.get(reason, 0.0)
            for reason in ("batch", "straggler", "weights")
        }
        return {**waits, "consumed": report.consumed_tokens}


def _sample(metric: Metric, value: float, **labels: str) -> Sample:
    return Sample(metric.name, {"run": RUN, **labels}, value)
