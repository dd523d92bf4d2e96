"""Which side of a run waits for the other, and for how much of the time.

Rates are predicted from shapes and data sheets. The step that follows from them is simulated, with
the real gate and schedule (`rollcast.simulation.split`), as `rollcast plan devices` does. It takes
about the longest of these, or more where lengths are uneven:

    update + publishing        the trainer never waits
    sampling                   every slot of every generator is always taken
    (rollout + update) / k     groups last at most k steps (Little's law)

Where all of them share one GPU, an update also takes its turns with the engines' work on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollcast.config.errors import UserError
from rollcast.memory.plan import MemoryPlan
from rollcast.recipe.schedule import make_schedule
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import DeadlockError
from rollcast.simulation.split import Rates, Split, SplitOutcome, SplitSimulator
from rollcast.simulation.workload import lognormal_with_mean
from rollcast.throughput.assumptions import Assumptions
from rollcast.throughput.card import Card
from rollcast.throughput.generator import GeneratorRate
from rollcast.throughput.lengths import lengths_with_mean
from rollcast.throughput.trainer import TrainerRate


@dataclass(frozen=True)
class Balance:
    """The predicted steady state of a run."""

    trainer: TrainerRate
    generator: GeneratorRate
    generators: int
    shares_gpu: bool = False
    """Trainer and generators use the same GPU."""
    simulated: SplitOutcome | None = None
    """This split, if it was simulated before: with rates that the user measured, perhaps."""

    @property
    def sampled_groups(self) -> int:
        """Groups that the generators sample for one step, filtered ones included."""
        recipe = self.trainer.plan.config.recipe
        if not recipe.refill_filtered:
            return recipe.prompts_per_step
        return round(recipe.prompts_per_step / (1.0 - self.trainer.assumptions.filtered_share))

    @property
    def sampling_seconds(self) -> float:
        """All generators sample the groups of one step."""
        rollouts = self.sampled_groups * self.trainer.plan.config.recipe.rollouts_per_prompt
        return (
            rollouts
            * self.trainer.lengths.mean
            / (self.generators * self.generator.tokens_per_second)
        )

    @property
    def window_seconds(self) -> float:
        """The shortest step with which groups stay within the staleness bound."""
        steps = max(1, self.trainer.plan.config.recipe.schedule.max_staleness)
        return (self.generator.longest_seconds + self.trainer.update_seconds) / steps

    @property
    def pause_seconds(self) -> float:
        """How long after an update the trainer may not begin the next one."""
        turns = self._gpu_seconds_of_sampling if self.shares_gpu else 0.0
        return self.trainer.publish_seconds + turns

    @cached_property
    def outcome(self) -> SplitOutcome:
        """The simulated step."""
        if self.simulated is not None:
            return self.simulated
        recipe = self.trainer.plan.config.recipe
        generator = self.generator
        lengths = self.trainer.lengths
        rates = Rates(
            schedule=make_schedule(recipe.schedule, groups_per_step=self.sampled_groups),
            lengths=lognormal_with_mean(lengths.mean, lengths.spread, lengths.budget),
            rollouts_per_group=recipe.rollouts_per_prompt,
            engine=EngineSpeed.through(
                round(generator.most_running),
                generator.tokens_per_second_with(generator.most_running),
                generator.tokens_per_second_with(1.0),
            ),
            step_seconds=self.trainer.update_seconds,
            predicted_trainer=lambda _: (self.trainer.update_seconds, self.pause_seconds),
        )
        split = Split(self.generators, self.trainer.plan.worker.workers, self.trainer.plan.ranks)
        try:
            return SplitSimulator(rates).simulate(split)
        except DeadlockError as error:
            raise UserError(f"recipe.schedule: the simulated run cannot finish ({error})") from None

    @property
    def step_seconds(self) -> float:
        """Time from one step to the next."""
        return self.outcome.step_seconds

    @property
    def trainer_idle(self) -> float:
        """Share of the time that the trainer's GPUs are not in an update: waiting for rollouts or
        publishing.
        """
        return self.outcome.trainer_idle

    @property
    def generator_idle(self) -> float:
        """Share of what the generators could sample that no step needs."""
        return self.outcome.generator_idle

    @property
    def gpu_idle(self) -> float | None:
        """Share of the time in which neither side uses the GPU that they share.

        None = they share none.
        """
        if not self.shares_gpu:
            return None
        return (
            1.0 - (self.trainer.update_seconds + self._gpu_seconds_of_sampling) / self.step_seconds
        )

    @property
    def _gpu_seconds_of_sampling(self) -> float:
        """Seconds of one GPU that all engines need for the groups of a step."""
        return self.generators * self.sampling_seconds * self.generator.gpu_share

    def as_json(self) -> dict[str, Any]:
        """Seconds, tokens per second and shares."""
        trainer = self.trainer
        generator = self.generator
        return {
            "card": trainer.card.name,
            "generators": self.generators,
            "trainer_ranks": trainer.plan.ranks,
            "trainer_idle": self.trainer_idle,
            "generator_idle": self.generator_idle,
            "shared_gpu_idle": self.gpu_idle,
            "step_seconds": self.step_seconds,
            "update_seconds": trainer.update_seconds,
            "publish_seconds": trainer.publish_seconds,
            "sampling_seconds": self.sampling_seconds,
            "window_seconds": self.window_seconds,
            "trainer_tokens_per_second": trainer.tokens_per_second,
            "generator_tokens_per_second": generator.tokens_per_second,
            "running_rollouts": generator.running,
            "kv_share": generator.kv_share,
            "preemption_share": generator.preemption_share,
            "rebuild_seconds": generator.rebuild_seconds,
        }


def predict(plan: MemoryPlan, card: Card, generators: int, assumptions: Assumptions) -> Balance:
    """`generators`: how many of them.

    Raises UserError: a mean length that the budget does not allow.
    """
    recipe = plan.config.recipe
    budget = recipe.max_completion_tokens
    configured_mean = assumptions.mean_tokens
    mean = assumptions.mean_length_share * budget if configured_mean is None else configured_mean
    # Largest mean length over the budget: with more, nearly every completion is truncated and none
    # has a spread.
    max_mean_share = 0.95
    if not 0 < mean <= max_mean_share * budget:
        raise UserError(
            f"--mean-tokens {mean:g}: must be positive and at most {max_mean_share * budget:.0f}, "
            f"95 % of recipe.max_completion_tokens {budget}"
        )
    lengths = lengths_with_mean(mean, assumptions.log_length_spread, budget)
    prompt = assumptions.mean_prompt_share * recipe.max_prompt_tokens
    return Balance(
        TrainerRate(plan, card, lengths, prompt, assumptions),
        GeneratorRate(plan, card, lengths, prompt, assumptions),
        generators,
        shares_gpu=plan.shares_gpu,
    )
