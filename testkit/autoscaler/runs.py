"""One simulated run under a policy, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rollcast.config.autoscaler import Autoscaler
from testkit.autoscaler.policies import Hpa, Rollcast, unfinished_tasks, waiting_tasks
from testkit.autoscaler.scaled_fleet import PodTimes, ScaledFleet
from testkit.autoscaler.scenarios import ENGINE, GROUPS_PER_STEP, LAG, TRAINER_DEVICES, Scenario
from testkit.simulation.faulty_pipeline import FaultyPipeline

MOST_EVENTS = 10**9


@dataclass
class Run:
    """A run and who scales it."""

    scenario: Scenario
    fleet: ScaledFleet
    policy: Callable[[], None] | None = None

    @property
    def pipeline(self) -> FaultyPipeline:
        return self.fleet.pipeline


def start(scenario: Scenario, generators: int, *, seed: int = 0) -> Run:
    """A run whose first pods are up."""
    # Seconds until a pod of vLLM joins on a cluster
    fleet = ScaledFleet(scenario.pipeline(generators, seed), ENGINE, PodTimes(start_up=180.0))
    return Run(scenario, fleet)


def run_fixed(scenario: Scenario, generators: int, *, seed: int = 0) -> dict[str, Any]:
    """A fixed number of generators."""
    return finish(start(scenario, generators, seed=seed))


def with_rollcast(
    scenario: Scenario, generators: int, settings: Autoscaler, *, seed: int = 0
) -> dict[str, Any]:
    """The autoscaler in mode controller, beginning with this many."""
    run = start(scenario, generators, seed=seed)
    run.policy = Rollcast(run.fleet, settings, ENGINE)
    return finish(run)


def with_rollcast_through_hpa(
    scenario: Scenario, generators: int, settings: Autoscaler, *, tolerance: float, seed: int = 0
) -> dict[str, Any]:
    """The autoscaler in mode keda or hpa: an HPA follows its number."""
    run = start(scenario, generators, seed=seed)
    latest_target = [float(generators)]
    rollcast = Rollcast(
        run.fleet, settings, ENGINE, apply=lambda target: latest_target.append(float(target))
    )
    hpa = Hpa(
        run.fleet,
        lambda: latest_target[-1],
        1.0,
        settings.least,
        settings.most,
        tolerance=tolerance,
        # The number has waited out its ten minutes already; the HPA only paces.
        stabilization_seconds=0.0,
    )

    def both() -> None:
        rollcast()
        hpa()

    run.policy = both
    return finish(run)


def with_queue_hpa(
    scenario: Scenario,
    generators: int,
    *,
    metric: str,
    per_pod: float,
    max_pods: int,
    seed: int = 0,
) -> dict[str, Any]:
    """An HPA on the length of the queue."""
    run = start(scenario, generators, seed=seed)
    measure = {"waiting": waiting_tasks, "unfinished": unfinished_tasks}[metric]
    run.policy = Hpa(run.fleet, lambda: measure(run.fleet), per_pod, 1, max_pods)
    return finish(run)


def finish(run: Run) -> dict[str, Any]:
    """Run it to its end; shares leave the warm-up out, device-hours do not."""
    pipeline, scenario = run.pipeline, run.scenario
    if run.policy is not None:
        # The autoscaler's own interval
        run.fleet.every(15.0, run.policy)
    report = pipeline.run(steps=scenario.warm_up, max_events=MOST_EVENTS)
    pipeline.read()
    began, waits = pipeline.now, dict(report.wait_seconds)
    # The last quarter shows the settled state: if lengths grow it is the peak.
    late_step = scenario.steps - scenario.steps // 4
    pipeline.run(steps=late_step, max_events=MOST_EVENTS)
    pipeline.read()
    late_began, late_waits = pipeline.now, dict(report.wait_seconds)
    pipeline.run(steps=scenario.steps, max_events=MOST_EVENTS)
    pipeline.read()
    sizes = [size for _, size in run.fleet.sizes]
    hours = pipeline.now / 3600
    figures: dict[str, Any] = {
        "steps": scenario.steps,
        "hours": round(hours, 3),
        "generator_hours": round(run.fleet.generator_seconds / 3600, 2),
        "device_hours": round(run.fleet.generator_seconds / 3600 + TRAINER_DEVICES * hours, 2),
        "generators_first": sizes[0],
        "generators_last": sizes[-1],
        "generators_most": max(sizes),
        "idle": _shares(report.wait_seconds, waits, pipeline.now - began),
        "idle_last_quarter": _shares(report.wait_seconds, late_waits, pipeline.now - late_began),
        "staleness_max": max(report.staleness),
        "longest_group_steps": round(longest_group_steps(pipeline), 2),
        "changes": len(sizes) - 1,
        "turns": turns(
            [size for at, size in run.fleet.sizes if at >= report.step_times[scenario.turns_from]]
        ),
    }
    assert figures["staleness_max"] <= LAG
    assert report.groups["lost"] == 0
    return figures


def longest_group_steps(pipeline: FaultyPipeline) -> float:
    """Lifetime of the longest groups of the run's end over its optimizer step without waiting."""
    times = pipeline.report.step_times[-16:]
    step = (times[-1] - times[0]) / (len(times) - 1)
    return max(seconds for _, seconds in pipeline.report.lifetimes[-16 * GROUPS_PER_STEP :]) / step


def turns(sizes: list[int]) -> int:
    """How often the number turned by more than one generator: one fewer is tried on purpose, every
    two hours.
    """
    count = direction = 0
    extreme = sizes[0] if sizes else 0
    for size in sizes:
        if direction * (size - extreme) > 0 or (direction == 0 and abs(size - extreme) > 1):
            direction, extreme = (1 if size > extreme else -1), size
        elif abs(size - extreme) > 1:
            count, direction, extreme = count + 1, -direction, size
    return count


def _shares(
    waits: dict[str, float], earlier_waits: dict[str, float], seconds: float
) -> dict[str, float]:
    shares = {
        str(reason): (total - earlier_waits.get(reason, 0.0)) / seconds
        for reason, total in waits.items()
    }
    return {
        "all": round(sum(shares.values()), 4),
        **{name: round(share, 4) for name, share in shares.items() if share},
    }
