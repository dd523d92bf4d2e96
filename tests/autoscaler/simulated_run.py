"""A simulated run that the whole autoscaler scales: its own loop and, in mode keda, its own server
on a real port.

A trainer that consumes 3,200 tokens a second while it does not wait, generators that sample 400
each: 8 feed it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, cast

from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.deployment import Deployment
from rollcast.autoscaler.loop import Loop, widest_window
from rollcast.config.run import parse_run_config
from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import SimulatedTrainer
from rollcast.simulation.workload import Workload, lognormal
from rollcast.telemetry import autoscaler_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from testkit.autoscaler.policies import Hpa
from testkit.autoscaler.scaled_fleet import PodTimes, ScaledFleet
from testkit.simulation.faulty_pipeline import FaultTimes, FaultyPipeline
from tests.autoscaler.keda import Keda, serve
from tests.autoscaler.simulated_cluster import RUN, SimulatedCluster, SimulatedPages

GROUPS, ROLLOUTS, LAG, SLOTS = 8, 4, 4, 8
TOKENS, STEP_SECONDS = 4_000.0, 40.0
SECONDS_PER_TOKEN = 0.02
FEED = 8
"""Generators that feed the trainer."""
TURN_SECONDS, ASK_SECONDS = 15.0, 30.0


class ScaledRun:
    """`with ScaledRun(..) as run`: its clock is the simulation's."""

    def __init__(
        self,
        mode: str,
        generators: int,
        folder: Path,
        *,
        start_up: float = 180.0,
        trainer_away: float = 60.0,
        tokens: float = TOKENS,
        lag: int = LAG,
        slots: int = SLOTS,
    ) -> None:
        """seconds, but for `tokens` of a mean completion, the largest staleness in steps, and slots
        of a generator.
        """
        self.mode = mode
        engine = EngineSpeed(slots=slots, seconds_per_token=SECONDS_PER_TOKEN)
        schedule = PipelineRL(max_staleness=lag, groups_per_step=GROUPS)
        self.window = widest_window(schedule)
        """Generators that it has work for, one group each."""
        pipeline = FaultyPipeline(
            schedule=schedule,
            workload=Workload(
                lengths=lognormal(tokens, 0.1, 1.5 * tokens), rollouts_per_group=ROLLOUTS
            ),
            engines=[engine] * generators,
            trainer=SimulatedTrainer(step=STEP_SECONDS),
            faults=FaultTimes(restart=trainer_away),
            delays=Delays(publish=0.5, join=2.0),
            fresh=True,
        )
        self.fleet = ScaledFleet(pipeline, engine, PodTimes(start_up=start_up))
        self.cluster = SimulatedCluster(self.fleet)
        self.pages = SimulatedPages(self.fleet)
        self.hpa = Hpa(
            cast(ScaledFleet, self.cluster), self._number, 1.0, 1, 64, stabilization_seconds=0.0
        )
        self._config = parse_run_config(
            {
                "run": RUN,
                "folder": str(folder),
                "model": {"path": "m", "max_length": 16_384},
                "recipe": {
                    "prompts_per_step": GROUPS,
                    "rollouts_per_prompt": ROLLOUTS,
                    "max_prompt_tokens": 64,
                    "schedule": {"kind": "pipeline", "max_staleness": lag},
                },
                "tasks": {"evaluation": {"rollouts_per_prompt": ROLLOUTS}},
                "generator": {"slots": slots},
                "autoscaler": {"mode": mode, "deployment": "generators", "namespace": "rl"},
            },
            source="test",
        )
        self._loop: Loop | None = None
        self._board = DecisionBoard()
        self._exporter = Exporter(RUN)
        self._server: Any = None
        self._keda: Keda | None = None

    @property
    def now(self) -> float:
        return self.fleet.pipeline.now

    def __enter__(self) -> ScaledRun:
        self.start_autoscaler()
        self.fleet.every(TURN_SECONDS, self._turn)
        if self.mode != "controller":
            self.fleet.every(ASK_SECONDS, self._ask)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop_autoscaler()

    def start_autoscaler(self) -> None:
        """A new process: it knows nothing."""
        self._board, self._exporter = DecisionBoard(), Exporter(RUN)
        deployment = cast(Deployment, self.cluster)
        self._loop = Loop(
            self._config,
            self.pages,
            deployment,
            self._board,
            self._exporter,
            clock=lambda: self.now,
        )
        self._loop.begin()
        if self.mode == "keda":
            self._server, port = serve(self._board)
            self._keda = Keda(port)

    def stop_autoscaler(self) -> None:
        self._loop = None
        self._board.close()
        if self._keda is not None:
            self._keda.close()
            self._server.stop(0).wait(5)
            self._keda = None

    def until(self, seconds: float) -> None:
        self.fleet.pipeline.run_until(seconds)

    def restart_trainer(self) -> None:
        """It dies; its page is back after a minute, and it trains again `trainer_away` seconds
        after its death.
        """
        self.fleet.pipeline.restart_trainer()
        self.pages.away = "the trainer does not answer"

        def page_is_back() -> None:
            self.pages.away = None
            self.pages.restart_trainer()

        self.fleet.pipeline.schedule_at(self.now + 60.0, page_is_back)

    def asked_between(self, begin: float, end: float) -> list[int]:
        """Numbers that the Deployment was told to have, the one at `begin` first."""
        before = [number for at, number in self.cluster.asked_for if at <= begin]
        return before[-1:] + [number for at, number in self.cluster.asked_for if begin < at <= end]

    def said(self, reason: str) -> list[str]:
        """Messages of the Deployment's events with that reason."""
        return [message for _, said, message in self.cluster.events if said == reason]

    def _turn(self) -> None:
        if self._loop is not None:
            self._loop.turn()

    def _ask(self) -> None:
        """What the HPA does; without a metric it leaves the number as it is."""
        if self._loop is not None and self._board.target is not None:
            self.hpa()

    def _number(self) -> float:
        if self._keda is not None:
            return float(self._keda.desired())
        found = [
            s.value
            for s in parse_page(self._exporter.render().decode())
            if s.name == autoscaler_metrics.GENERATORS_DESIRED.name
        ]
        return found[0]
