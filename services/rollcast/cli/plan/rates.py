"""The rates of a simulation from what the user measured, from a run's folder, or from both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.config.bounds import MOST_DERIVED_SLOTS
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.cli.plan.measured_run import MeasuredRun
    from rollcast.config.recipe import Recipe
    from rollcast.simulation.generator import EngineSpeed
    from rollcast.simulation.split import Rates

DEFAULT_LOG_LENGTH_SPREAD = 0.8
"""ln tokens: spread of completion lengths, if it was not measured. Typical for reasoning models."""
MAX_BOTTLENECK_IDLE = 0.05
"""Share of the time: a trainer that waits for less is the bottleneck. Chosen, not measured."""
MAY_BE_ZERO = ("max_staleness", "publish_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateOptions:
    """Rates that the user measured, each by an option; None = not given."""

    step_seconds: Annotated[
        float | None, typer.Option(help="an optimizer step, waiting left out")
    ] = None
    trainer_devices: Annotated[
        int | None, typer.Option(min=1, help="devices it was measured on")
    ] = None
    trainer_scaling: Annotated[
        float | None, typer.Option(help="e: T times the devices are T^e times as fast; default 1")
    ] = None
    trainer_multiple: Annotated[
        int, typer.Option(min=1, help="trainers come in multiples of this")
    ] = 1
    tokens_per_second: Annotated[
        float | None, typer.Option(help="of one generator with every slot taken")
    ] = None
    tokens_per_second_alone: Annotated[
        float | None, typer.Option(help="of one rollout alone on a generator")
    ] = None
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="rollouts a generator runs at the same time; default 256"),
    ] = None
    devices_per_generator: Annotated[int | None, typer.Option(min=1, help="default 1")] = None
    mean_tokens: Annotated[float | None, typer.Option(help="mean length of a completion")] = None
    longest_tokens: Annotated[
        float | None, typer.Option(help="mean of the longest completion of each group")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="budget of a completion; default the recipe's")
    ] = None
    groups: Annotated[
        int | None, typer.Option(min=1, max=512, help="P, groups per step; default 48")
    ] = None
    rollouts: Annotated[
        int | None, typer.Option(min=1, max=1024, help="G, rollouts per group; default 16")
    ] = None
    max_staleness: Annotated[
        int | None, typer.Option(min=0, max=64, help="k, the staleness bound; default 8")
    ] = None
    publish_seconds: Annotated[
        float, typer.Option(min=0, help="until the quickest generator has new weights")
    ] = 0.05


def calibrate(
    options: RateOptions, run: MeasuredRun | None, planned: Recipe | None = None
) -> Rates:
    """The rates of the simulation, options before measurements. Raises UserError.

    `planned`: the recipe of a run that was not measured. None = that of `run`, or the defaults.
    """
    from rollcast.config.recipe import Recipe as DefaultRecipe
    from rollcast.recipe.schedule import PipelineRL, make_schedule
    from rollcast.simulation.split import Rates
    from rollcast.simulation.workload import lognormal_with_mean

    _check_amounts(options)
    step_seconds = options.step_seconds or (run.update_seconds if run else None)
    tokens_per_second = options.tokens_per_second or (run.tokens_per_second if run else None)
    mean_tokens = options.mean_tokens or (run.mean_tokens if run else None)
    if step_seconds is None or tokens_per_second is None or mean_tokens is None:
        raise UserError(
            "--step-seconds, --tokens-per-second, --mean-tokens: one is missing; give all three, "
            "or a run to measure them on with --run-folder"
        )
    recipe = run.config.recipe if run else planned or DefaultRecipe()
    groups = options.groups or recipe.prompts_per_step
    rollouts = options.rollouts or recipe.rollouts_per_prompt
    schedule = make_schedule(recipe.schedule, groups_per_step=groups)
    if options.max_staleness is not None:
        schedule = PipelineRL(max_staleness=options.max_staleness, groups_per_step=groups)
    budget = options.max_tokens or recipe.max_completion_tokens
    if mean_tokens > budget:
        raise UserError(
            f"--mean-tokens {mean_tokens:g}: is more than the budget of {budget}; change it or "
            "--max-tokens"
        )
    longest = options.longest_tokens or (run.longest_tokens if run else None)
    spread = _log_length_spread(mean_tokens, longest, rollouts, budget)
    slots = options.slots or (run.config.generator.most_slots if run else MOST_DERIVED_SLOTS)
    return Rates(
        schedule=schedule,
        lengths=lognormal_with_mean(mean_tokens, spread, budget),
        rollouts_per_group=rollouts,
        engine=_engine(slots, tokens_per_second, options.tokens_per_second_alone),
        devices_per_generator=options.devices_per_generator
        or (run.config.generator.tensor_parallel if run else 1),
        step_seconds=step_seconds,
        trainer_devices=options.trainer_devices or (run.trainer_devices if run else 1),
        trainer_scaling=1.0 if options.trainer_scaling is None else options.trainer_scaling,
        trainer_multiple=options.trainer_multiple,
        publish_seconds=options.publish_seconds,
    )


def _check_amounts(options: RateOptions) -> None:
    """Raises UserError: one is not an amount."""
    for name, value in asdict(options).items():
        # Largest rate, time or count that an option may have
        if value is not None and not (0 < value < 1e12 or (value == 0 and name in MAY_BE_ZERO)):
            raise UserError(
                f"--{name.replace('_', '-')} {value:g}: must be positive; give the measured value"
            )


def _log_length_spread(
    mean_tokens: float, longest: float | None, rollouts: int, budget: int
) -> float:
    """Standard deviation of ln tokens. `longest`: mean of the longest completion of each group;
    None = it was not measured.
    """
    from rollcast.simulation.workload import fit_spread

    if longest is None:
        return DEFAULT_LOG_LENGTH_SPREAD
    if longest < mean_tokens:
        raise UserError(
            f"--longest-tokens {longest:g}: is less than the mean completion of {mean_tokens:g} "
            "tokens; give the mean of the longest of each group, or change --mean-tokens"
        )
    return fit_spread(mean_tokens, longest, rollouts, budget)


def _engine(slots: int, tokens_per_second: float, alone: float | None) -> EngineSpeed:
    from rollcast.simulation.generator import EngineSpeed

    full = slots / tokens_per_second
    if alone is None or slots == 1:
        return EngineSpeed(slots=slots, seconds_per_token=full)
    if 1 / alone > full:
        raise UserError(
            f"--tokens-per-second-alone {alone:g}: is less than a rollout has among {slots}, "
            f"{1 / full:.4g}; give the rate of a single rollout"
        )
    return EngineSpeed.through(slots, tokens_per_second, alone)


def list_assumptions(options: RateOptions, run: MeasuredRun | None, rates: Rates) -> list[str]:
    """What the rates take for granted, a sentence each."""
    caveats = []
    if options.trainer_scaling is None and rates.predicted_trainer is None:
        caveats.append(
            f"A trainer on T devices is taken to be T / {rates.trainer_devices} "
            f"times as fast as the one measured on {rates.trainer_devices}; measure a second count "
            "and set --trainer-scaling."
        )
    if options.tokens_per_second_alone is None:
        caveats.append(
            "Rollouts are taken to be decoded equally fast at any load; set "
            "--tokens-per-second-alone if few are decoded faster."
        )
    if options.longest_tokens is None and (run is None or run.longest_tokens is None):
        caveats.append(
            f"The spread of lengths was not measured: {DEFAULT_LOG_LENGTH_SPREAD} in ln tokens is "
            "assumed; set --longest-tokens."
        )
    if run is not None and options.tokens_per_second is None:
        if run.waited < MAX_BOTTLENECK_IDLE:
            caveats.append(
                "The trainer hardly waited, so the generators could deliver more than was "
                "measured, and fewer may do; set --tokens-per-second from a test at full load."
            )
        else:
            caveats.append(
                f"The trainer was not in an update for {run.waited:.0%} of the time; all of it is "
                "counted as waiting "
                "for rollouts, so its own overheads count against the generators."
            )
    return caveats
