"""The rates of a simulation from a run file and the GPUs it will run on, where nothing was measured
yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.cli import memory_options
from rollcast.cli.expected_options import Expected
from rollcast.cli.plan.rates import RateOptions
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.memory.plan import MemoryPlan
    from rollcast.simulation.split import Rates, Split
    from rollcast.throughput.balance import Balance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToPlan:
    """A run that was not started yet; `config` None = none is given."""

    config: Annotated[
        Path | None, typer.Option(help="run file: predict the rates; options below win")
    ] = None
    gpu: memory_options.Gpu = None
    model_config: Annotated[
        Path | None,
        typer.Option(help="the model's config.json, where model.path is not on this machine"),
    ] = None
    mfu: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="the trainer's model FLOPs over the peak")
    ] = None
    card: Annotated[str | None, typer.Option(help="GPU, such as H100; default by its memory")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class PredictedRates:
    plan: MemoryPlan
    expected: Expected

    def fill_missing_rates(self, options: RateOptions) -> RateOptions:
        """The rates that the user gave, and the rest as predicted."""
        balance = self.predict_balance(self.plan.ranks, 1)
        recipe = self.plan.config.recipe
        generator = balance.generator
        return replace(
            options,
            step_seconds=options.step_seconds or balance.trainer.update_seconds,
            trainer_devices=options.trainer_devices or self.plan.ranks,
            tokens_per_second=options.tokens_per_second
            or generator.tokens_per_second_with(generator.most_running),
            tokens_per_second_alone=options.tokens_per_second_alone
            or generator.tokens_per_second_with(1.0),
            slots=options.slots or round(generator.most_running),
            devices_per_generator=options.devices_per_generator or self.plan.worker.workers,
            mean_tokens=options.mean_tokens or balance.trainer.lengths.mean,
            max_tokens=options.max_tokens or recipe.max_completion_tokens,
            groups=options.groups or balance.sampled_groups,
        )

    def with_trainer(self, rates: Rates, options: RateOptions) -> Rates:
        """The rates with the trainer of each split as predicted, unless the user gave its rate."""
        if options.step_seconds is not None or options.trainer_scaling is not None:
            return rates

        @cache
        def predict_trainer(ranks: int) -> tuple[float, float]:
            balance = self.predict_balance(ranks, 1)
            return balance.trainer.update_seconds, balance.pause_seconds

        return replace(rates, predicted_trainer=predict_trainer)

    def predict_balance(self, ranks: int, generators: int) -> Balance:
        """The prediction for these numbers of trainer ranks and generators."""
        plan = self.plan.with_settings(ranks=ranks)
        balance = replace(self.expected, generators=generators).balance(plan)
        assert balance is not None, "it is planned for GPUs"
        return balance

    def fitting(self, splits: list[Split]) -> list[Split]:
        """The splits whose trainer fits its GPUs."""
        from rollcast.memory.verdict import check_shard_ranks, refusals

        plans = [(split, self.plan.with_settings(ranks=split.trainer_devices)) for split in splits]
        return [
            split for split, plan in plans if not check_shard_ranks(plan) and not refusals(plan)
        ]


def read_prediction(
    planned: RunToPlan, options: RateOptions, devices: int
) -> PredictedRates | None:
    """None without a run file.

    Raises UserError, also if no split of this many devices fits their memory.
    """
    from rollcast.config.run import load_run_config
    from rollcast.memory.check import plan_run
    from rollcast.memory.device import GB, Device, smallest_gpu
    from rollcast.memory.verdict import refusals

    if planned.config is None:
        return None
    if planned.gpu is None:
        # Memory of a GPU if neither --gpu nor this machine's driver gives it: an H100
        device = smallest_gpu() or Device("gpu", round(80.0 * GB))
    else:
        device = Device("gpu", round(planned.gpu * GB))
    config = load_run_config(planned.config)
    # Devices are split here: no process shares one.
    config = config.model_copy(update={"local": config.local.model_copy(update={"gpus": None})})
    plan = plan_run(
        config,
        device,
        ranks=options.trainer_devices,
        model_config=planned.model_config,
        ask_hub=True,
    )
    assert plan is not None, "the hub was asked"
    most_ranks = devices - plan.worker.workers
    if most_ranks > 0 and (refused := refusals(plan.with_settings(ranks=most_ranks))):
        raise UserError("\n".join(refused))
    return PredictedRates(
        plan, Expected(mean_tokens=options.mean_tokens, mfu=planned.mfu, card=planned.card)
    )
