"""`rollcast plan devices`: how to split devices between generators and trainers, by simulation."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import expected_options, report
from rollcast.cli.expected_options import prediction_report
from rollcast.cli.output import say
from rollcast.cli.plan.predicted_rates import RunToPlan, read_prediction
from rollcast.cli.plan.rates import MAX_BOTTLENECK_IDLE, RateOptions, calibrate, list_assumptions
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.cli.plan.measured_run import MeasuredRun
    from rollcast.simulation.split import Rates, SplitOutcome, SplitSearch, SplitSimulator


@functools.partial(options.with_group, "planned", RunToPlan)
@functools.partial(options.with_group, "rate_options", RateOptions)
def devices(
    devices: Annotated[int, typer.Option(min=2, max=1024, help="devices to split")],
    *,
    run_folder: Annotated[
        Path | None, typer.Option(help="measure the rates on this run; options below win")
    ] = None,
    planned: RunToPlan,
    rate_options: RateOptions,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Simulate splits of the devices with the real gate and schedule; recommend one.

    The rates are measured on a run (--run-folder), given by options, or predicted for a run file on
    GPUs (--config), then with every assumption.

    \b
    rollcast plan devices --devices 8 --config run.yaml --gpu 80
    rollcast plan devices --devices 80 --run-folder runs/my-run
    rollcast plan devices --devices 80 --step-seconds 60 --trainer-devices 16 \\
        --tokens-per-second 8000 --mean-tokens 4000 --longest-tokens 10000
    rollcast plan devices --devices 64 --run-folder runs/my-run --trainer-multiple 8 --plot split.svg
    """  # noqa: E501
    from rollcast.simulation.pipeline import DeadlockError
    from rollcast.simulation.split import MAX_SIMULATIONS, SplitSimulator, list_splits

    run = None
    if run_folder is not None:
        from rollcast.cli.plan.measured_run import read_run

        run = read_run(run_folder)
    prediction = read_prediction(planned, rate_options, devices)
    filled_options = rate_options
    if prediction is None:
        rates = calibrate(rate_options, run)
        splits = list_splits(devices, rates)
    else:
        if run is not None:
            raise UserError(
                "--run-folder, --config: a run is measured or predicted; give one of the two"
            )
        filled_options = prediction.fill_missing_rates(rate_options)
        rates = calibrate(filled_options, None, prediction.plan.config.recipe)
        rates = prediction.with_trainer(rates, rate_options)
        splits = prediction.fitting(list_splits(devices, rates))
    if not splits:
        need = rates.devices_per_generator + rates.trainer_multiple
        raise UserError(
            f"--devices {devices}: one generator and one trainer need {need}; give as many or more"
        )
    caveats = list_assumptions(filled_options, run, rates)
    simulator = SplitSimulator(rates)
    try:
        with _progress("simulating splits", min(len(splits), MAX_SIMULATIONS)) as show:
            split_search = simulator.search(splits, show)
        check = None if run is None else measured_against_model(run, simulator)
    except DeadlockError as error:
        raise UserError(
            f"--devices {devices}: the simulated run cannot finish ({error}); check the rates"
        ) from None
    answer = split_report(devices, split_search, rates, check, caveats)
    balance = None
    if prediction is not None:
        best = split_search.frugal
        balance = replace(
            prediction.predict_balance(best.split.trainer_devices, best.split.generators),
            simulated=best,
        )
    answer |= prediction_report(balance)
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.cli.plan.plot import draw_splits

        draw_splits(split_search, answer["caveats"], plot)


def measured_against_model(run: MeasuredRun, simulator: SplitSimulator) -> dict[str, Any]:
    """The measured split in the model."""
    from rollcast.simulation.split import SECONDS_PER_HOUR, Split

    outcome = simulator.simulate(
        Split(run.generators, run.config.generator.tensor_parallel, run.trainer_devices)
    )
    return {
        "generators": run.generators,
        "trainer_devices": run.trainer_devices,
        "steps": run.num_steps,
        "pauses_left_out": run.pauses,
        "steps_per_hour": SECONDS_PER_HOUR / run.interval_seconds,
        "trainer_idle": run.waited,
        "staleness_mean": run.staleness_mean,
        "simulated_steps_per_hour": outcome.steps_per_hour,
        "simulated_trainer_idle": outcome.trainer_idle,
    }


def split_report(
    devices: int,
    split_search: SplitSearch,
    rates: Rates,
    check: dict[str, Any] | None,
    caveats: list[str],
) -> dict[str, Any]:
    """The whole answer as JSON."""
    if check is not None:
        error = check["simulated_steps_per_hour"] / check["steps_per_hour"] - 1
        # Relative error of the simulated rate of the measured split above which the user is warned.
        # Chosen, not measured.
        if abs(error) > 0.1:
            caveats = [
                f"The model is {error:+.0%} off the measured rate of the split that was run; "
                "compare splits by their order, not by their figures.",
                *caveats,
            ]
    return {
        "devices": devices,
        "rates": {
            "step_seconds": rates.step_seconds,
            "trainer_devices": rates.trainer_devices,
            "trainer_scaling": rates.trainer_scaling,
            "generator_tokens_per_second": rates.tokens_per_second(),
            "devices_per_generator": rates.devices_per_generator,
            "slots": rates.engine.slots,
            "groups_per_step": rates.schedule.groups_per_step,
            "rollouts_per_group": rates.rollouts_per_group,
            "max_staleness": rates.schedule.max_staleness,
        },
        "measured": check,
        "splits": [_split(outcome) for outcome in split_search.outcomes],
        "recommended": _split(split_search.frugal),
        "limit": limit(split_search.frugal),
        "as_good_trainer_devices": [
            outcome.split.trainer_devices for outcome in split_search.as_good
        ],
        "beaten_by_bound": split_search.beaten,
        "passed_over": split_search.passed_over,
        "caveats": caveats,
    }


def limit(outcome: SplitOutcome) -> str:
    """The bottleneck of the split: training, generation or the staleness window."""
    if outcome.wait_share < MAX_BOTTLENECK_IDLE:
        return "training"
    # Share of their capacity: generators with a larger load are the bottleneck. Chosen, not
    # measured.
    if outcome.generator_load > 0.9:
        return "generation"
    return "window"


def _split(outcome: SplitOutcome) -> dict[str, Any]:
    outcome_fields = asdict(outcome)
    return {**outcome_fields.pop("split"), **outcome_fields, "trainer_idle": outcome.trainer_idle}


LIMITS = {
    "training": "The trainer is the bottleneck: it hardly waits.",
    "generation": "Generation is the bottleneck: every slot is taken nearly all the time.",
    "window": "The staleness window is the bottleneck: groups last as long as k steps allow. More "
    "devices would not "
    "help and fewer may do; faster decoding, shorter answers or a larger k would.",
}


def _show(answer: dict[str, Any]) -> None:
    best = answer["recommended"]
    rows = [
        (
            str(split["generators"]) + (" *" if split == best else ""),
            str(split["trainer_devices"]),
            _rate(split["steps_per_hour"]),
            _rate(split["standard_error"]),
            f"{split['trainer_idle']:.0%}",
            max(split["waits"], key=split["waits"].__getitem__, default="-"),
            f"{split['staleness_mean']:.1f}",
            str(split["staleness_max"]),
            f"{split['generator_load']:.0%}",
        )
        for split in answer["splits"]
    ]
    header = (
        "generators",
        "trainers",
        "steps/hour",
        "±",
        "trainer idle",
        "for",
        "staleness",
        "most",
        "load",
    )
    report.show_table(header, rows)
    say(
        f"{best['generators']} generators of {best['devices_per_generator']} and "
        f"{best['trainer_devices']} trainer devices: {_rate(best['steps_per_hour'])} ± "
        f"{_rate(best['standard_error'])} steps an hour, trainer idle {best['trainer_idle']:.0%}. "
        f"{LIMITS[answer['limit']]}"
    )
    good = answer["as_good_trainer_devices"]
    if len(good) > 1:
        several = ", ".join(map(str, good))
        say(
            f"As good, within 3 % or their errors: {several} trainer devices; the fewest are "
            "recommended."
        )
    if (check := answer["measured"]) is not None:
        say(
            f"Measured on {check['generators']} generators and {check['trainer_devices']} trainer "
            f"devices: {_rate(check['steps_per_hour'])} steps an hour over {check['steps']} steps; "
            f"the model says {_rate(check['simulated_steps_per_hour'])}."
        )
    if skipped := answer["beaten_by_bound"] + answer["passed_over"]:
        say(
            f"{skipped} splits not simulated: {answer['beaten_by_bound']} cannot reach the best, "
            f"{answer['passed_over']} lie between worse ones."
        )
    expected_options.show(answer)
    report.say_cautions(answer["caveats"])


def _rate(steps_per_hour: float) -> str:
    if steps_per_hour >= 1000:
        return f"{steps_per_hour:,.0f}"
    if steps_per_hour > 1e-3:
        return f"{steps_per_hour:.3g}"
    return "0"


@contextmanager
def _progress(title: str, expected: int) -> Iterator[Callable[[int], None]]:
    """Show on standard error how many splits are simulated and how long the others may take.

    If that is not a terminal, one line after the first split announces a simulation of more than 20
    seconds.
    """
    start_seconds = time.monotonic()

    def estimate(done: int) -> float:
        return (time.monotonic() - start_seconds) / done * max(expected - done, 0)

    if not sys.stderr.isatty():

        def say_once(done: int) -> None:
            # Seconds: a longer simulation is announced
            if done == 1 and (seconds := estimate(done)) > 20.0:
                typer.echo(f"{title}: about {expected}, up to {_duration(seconds)}", err=True)

        yield say_once
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{title}: about {expected}") as status:
        yield lambda done: status.update(
            f"{title}: {done} of about {expected}, up to {_duration(estimate(done))} left"
        )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds > 100 else f"{seconds:.0f} seconds"
