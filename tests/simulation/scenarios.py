"""Random runs of the whole pipeline, and what must hold in each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from rollcast.recipe.schedule import PipelineRL, PPOOffPolicy, Schedule
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import DeadlockError, SimulatedTrainer
from rollcast.simulation.workload import Workload, lognormal
from testkit.simulation.faulty_pipeline import FaultTimes, FaultyPipeline


@dataclass(frozen=True)
class Fault:
    time: float
    kind: str
    """kill, drain, join or restart."""
    generator: int = 1


@dataclass(frozen=True)
class Scenario:
    """Times in trainer steps: a step takes 1 s, the median rollout on the first generator `median`
    s.
    """

    schedule: Schedule
    median: float = 2.0
    sigma: float = 1.0
    budget: float = 20.0
    """Longest rollout, in seconds of the first generator."""
    rollouts_per_group: int = 1
    filtered: float = 0.0
    slots: tuple[int, ...] = (10**6,)
    """Per generator."""
    slowness: tuple[float, ...] = (1.0,)
    """Per generator: seconds per token are this many times the first one's."""
    crowding: float = 0.0
    """How much each further rollout slows an engine down, relative to one."""
    publish: float = 0.1
    join: float = 0.1
    detect: float = 2.0
    spread: float = 0.0
    checkpoint_every: int = 1
    claims_seen_late: bool = False
    fresh: bool = False
    faults: tuple[Fault, ...] = ()
    steps: int = 30
    seed: int = 0

    def pipeline(self) -> FaultyPipeline:
        engines = [
            EngineSpeed(
                slots=slots,
                seconds_per_token=0.01 * slowness,
                seconds_per_token_per_rollout=0.01 * self.crowding,
            )
            for slots, slowness in zip(self.slots, self.slowness, strict=True)
        ]
        pipeline = FaultyPipeline(
            schedule=self.schedule,
            workload=Workload(
                lengths=lognormal(100 * self.median, self.sigma, 100 * self.budget),
                rollouts_per_group=self.rollouts_per_group,
                filtered=self.filtered,
                seed=self.seed,
            ),
            engines=engines,
            trainer=SimulatedTrainer(step=1.0, spread=self.spread),
            faults=FaultTimes(
                restart=3.0, checkpoint_every=self.checkpoint_every, detect=self.detect
            ),
            delays=Delays(publish=self.publish, join=self.join),
            claims_seen_late=self.claims_seen_late,
            fresh=self.fresh,
            seed=self.seed,
        )
        for fault in self.faults:
            pipeline.schedule_at(fault.time, partial(apply, pipeline, fault, engines))
        return pipeline


def apply(pipeline: FaultyPipeline, fault: Fault, engines: list[EngineSpeed]) -> None:
    """Generator 0 is spared, so that the run can always go on."""
    others = [
        name
        for name, generator in pipeline.fleet.generators.items()
        if generator.alive and name > 0
    ]
    if fault.kind == "restart":
        pipeline.restart_trainer()
    elif fault.kind == "join":
        pipeline.fleet.join(engines[fault.generator % len(engines)])
    elif others and fault.kind == "kill":
        pipeline.fleet.kill(others[fault.generator % len(others)])
    elif others:
        pipeline.fleet.drain(others[fault.generator % len(others)])


def violation(scenario: Scenario, pipeline: FaultyPipeline | None = None) -> str | None:
    """Run it; return what is wrong, or None."""
    try:
        pipeline = pipeline or scenario.pipeline()
        report = pipeline.run(steps=scenario.steps, max_events=200_000)
    except (DeadlockError, AssertionError) as error:
        return repr(error)
    schedule = scenario.schedule
    if max(report.staleness) > schedule.max_staleness:
        return f"a token was {max(report.staleness)} steps old, k = {schedule.max_staleness}"
    restarted = any(fault.kind == "restart" for fault in scenario.faults)
    if not restarted:
        if report.groups["given_up"]:
            return f"{report.groups['given_up']} groups were given up by the gate"
        step = pipeline.step
        widest = (
            max((schedule.floor(s) + schedule.max_staleness - s + 1) for s in range(step + 1))
            * schedule.groups_per_step
        )
        if report.most_outstanding > widest:
            return f"{report.most_outstanding} groups were outstanding, the window is {widest}"
    if (
        not any(fault.kind in ("restart", "kill") for fault in scenario.faults)
        and report.groups["lost"]
    ):
        return f"{report.groups['lost']} groups were lost without a fault"
    settled = [number for _, number in report.history]
    if any(
        attempt.oldest is not None and attempt.oldest < pipeline.step - schedule.max_staleness
        for attempt in pipeline.outstanding
    ):
        return "a started group was left behind"
    everything = sorted(
        settled + [attempt.task.number for attempt in pipeline.outstanding] + pipeline.redo
    )
    if everything != list(range(len(everything))):
        return "a task was settled twice or never"
    return None


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    groups_per_step = draw(st.integers(1, 5))
    if draw(st.integers(0, 3)) == 0:
        return PPOOffPolicy(updates=draw(st.integers(1, 8)), groups_per_step=groups_per_step)
    return PipelineRL(max_staleness=draw(st.integers(0, 16)), groups_per_step=groups_per_step)


@st.composite
def scenarios(draw: st.DrawFn, fault_kinds: tuple[str, ...] = ()) -> Scenario:
    rollouts_per_group = draw(st.integers(1, 3))
    num_generators = draw(st.integers(1, 4))
    faults = (
        draw(
            st.lists(
                st.builds(
                    Fault,
                    time=st.floats(0, 60),
                    kind=st.sampled_from(fault_kinds),
                    generator=st.integers(0, 3),
                ),
                max_size=6,
            )
        )
        if fault_kinds
        else []
    )
    return Scenario(
        schedule=draw(schedules()),
        median=draw(st.sampled_from([0.3, 1.0, 3.0])),
        sigma=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        budget=draw(st.sampled_from([4.0, 20.0, 100.0])),
        rollouts_per_group=rollouts_per_group,
        filtered=draw(st.sampled_from([0.0, 0.2, 0.7])),
        slots=tuple(draw(st.integers(rollouts_per_group, 60)) for _ in range(num_generators)),
        slowness=(
            1.0,
            *(draw(st.sampled_from([1.0, 2.0, 20.0])) for _ in range(num_generators - 1)),
        ),
        crowding=draw(st.sampled_from([0.0, 0.05])),
        publish=draw(st.sampled_from([0.0, 0.1, 0.7, 2.5])),
        join=draw(st.sampled_from([0.0, 0.5, 4.0])),
        detect=draw(st.sampled_from([0.1, 5.0])),
        spread=draw(st.sampled_from([0.0, 0.9])),
        checkpoint_every=draw(st.integers(1, 6)),
        claims_seen_late=draw(st.booleans()),
        fresh=draw(st.booleans()),
        faults=tuple(faults),
        steps=draw(st.sampled_from([10, 30])),
        seed=draw(st.integers(0, 2**16)),
    )
