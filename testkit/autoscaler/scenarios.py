"""A run of 64 generators and 16 trainer devices as it might be: a model of some 8 billion
parameters on 80 GB devices.

An engine step takes 8 ms (16 GB of weights are read, the host prepares) and 48 ns for each token of
context: 131 kB of KV entries are read at 2.7 TB/s. So one generator samples ever fewer tokens a
second as answers grow. Its 48 slots keep 15,500 tokens of the longest answer within 6 steps. An
optimizer step takes 12 s whatever it trains on (weights are gathered and staged, the optimizer
moves them) and 5.44 us for each token. P, G and k are ScaleRL's. Lengths are lognormal with a
spread of 0.3, cut at 1.6 times their median.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import SimulatedTrainer
from rollcast.simulation.workload import Workload, lognormal
from testkit.simulation.faulty_pipeline import FaultyPipeline

GROUPS_PER_STEP, ROLLOUTS_PER_GROUP, LAG = 48, 16, 8
TRAINER_DEVICES = 16
ENGINE = EngineSpeed(slots=48, seconds_per_token=0.008, seconds_per_context_token=48e-9)
TRAINER = SimulatedTrainer(step=12.0, per_token=5.44e-6, spread=0.05)
DELAYS = Delays(publish=1.0, join=5.0)
SPREAD, CUT = 0.3, 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Lengths over a run, and a run of them."""

    name: str
    steps: int
    mean_tokens: Callable[[float], float]
    """Mean completion in tokens as a function of the run's progress in [0, 1]."""
    turns_from: int = 0
    """Step from which turns of the number are counted: that of the change that is looked at."""
    warm_up: int = 16
    """Steps that are left out of the shares: the pipeline fills."""
    stragglers: float = 0.0
    """Share of the tasks whose rollouts are 6 times as long."""

    def pipeline(self, generators: int, seed: int) -> FaultyPipeline:
        tasks = self.steps * GROUPS_PER_STEP

        def scale(number: int) -> float:
            # Mean of such lengths with median 1, the cut included
            mean = self.mean_tokens(min(1.0, number / tasks)) / 1.0323
            slow = (
                self.stragglers and number % round(1 / self.stragglers) == 0 and number > tasks / 4
            )
            return mean * (6.0 if slow else 1.0)

        workload = Workload(
            lengths=lognormal(1.0, SPREAD, CUT),
            rollouts_per_group=ROLLOUTS_PER_GROUP,
            scale=scale,
            prompt_tokens=300.0,
            seed=seed,
        )
        return FaultyPipeline(
            schedule=PipelineRL(max_staleness=LAG, groups_per_step=GROUPS_PER_STEP),
            workload=workload,
            engines=[ENGINE] * generators,
            trainer=TRAINER,
            delays=DELAYS,
            fresh=True,
            seed=seed,
        )
