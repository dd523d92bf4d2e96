"""`rollcast ablate`: what each part of a recipe is worth, by runs that leave it out."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import report
from rollcast.cli.output import echo_json
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rollcast.config.recipe import Recipe
    from rollcast.config.run import RunConfig
    from rollcast.config.sweep import SweepFile
    from rollcast.local.ablation import PlannedRun, Variant
    from rollcast.runfolder.outcomes import RunRecord
EVERY_PART = "all"


def ablate(
    config: Annotated[
        Path | None,
        typer.Option(
            help="run file of the whole recipe; default: the shipped miniature of ScaleRL"
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(metavar="PART,...", help="parts to leave out, one run each; default: all"),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="whole recipes, shipped or run files, to try on the same task and size",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="runs of each recipe")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="optimizer steps of each run; default: its budget")
    ] = None,
    run_minutes: Annotated[
        float | None, typer.Option(min=0.1, help="stop a run that takes longer; it failed")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="folder of the runs; default: RUN-ablation in the folder of the run file"
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="go on with a set; finished runs stay")
    ] = False,
    write_values: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="run nothing: write one Helm values file for each run"),
    ] = None,
    from_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="RUNS", help="run nothing: the table of a set whose run folders are in RUNS"
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="device-hours of all runs together, spent as `rollcast sweep run` does; each run "
            "ends at budget.device_hours at the latest; default: every run to its end"
        ),
    ] = None,
    as_json: report.JsonWithNews = False,
    plot: report.Plot = None,
) -> None:
    """Train the recipe, and the recipe without each part, one run after the other; end in the
    paper's table.

    Parts: cispo, fp32_head, prompt_average, batch_normalisation, zero_variance_filter,
    no_positive_resampling, interruption, pipeline, and own_loss, own_advantage, own_filter,
    own_curriculum, own_length_control for functions of your own. `all` are those that the recipe
    has. On demand only: fresh_data (the same budget on a quarter of the prompts; fresh_data:8 on an
    eighth).

    What a recipe of --recipe sets otherwise and the run file keeps (batch, budgets, optimizer) is
    named on standard error. A set trained elsewhere, with --write-values, ends in the same table by
    the same command and --from-folder. With --budget the forecast decides after each slice which
    run goes on, and the answer is that of `rollcast sweep run`; the same command goes on with it.

    \b
    rollcast ablate
    rollcast ablate --config my-run.yaml --without fp32_head,cispo --seeds 3
    rollcast ablate --config my-run.yaml --recipe qwen-dapo,minimax --steps 500
    rollcast ablate --config my-run.yaml --recipe qwen-dapo,minimax --budget 40
    rollcast ablate --config my-run.yaml --without all,fresh_data --seeds 3 --write-values values/
    rollcast ablate --config my-run.yaml --without all,fresh_data --seeds 3 --from-folder fetched-runs/
    """  # noqa: E501
    from rollcast.cli.demo import shipped_config, with_its_model
    from rollcast.cli.sweep.arms import plan_runs
    from rollcast.cli.sweep.run import run_to_the_end
    from rollcast.cli.values_files import write_values_files
    from rollcast.config.custom_function_digests import with_digests
    from rollcast.config.run import load_run_config
    from rollcast.local.ablation import plan, read_set

    if from_folder is not None and (go_on or folder is not None or write_values is not None):
        raise UserError(
            "--from-folder: trains nothing; leave --continue, --folder and --write-values out"
        )
    if budget is not None and (steps or run_minutes or go_on or write_values or from_folder):
        raise UserError(
            f"--budget {budget:g}: each run ends at budget.device_hours, and the same command goes "
            "on; leave --steps, --run-minutes, --continue, --write-values and --from-folder out"
        )
    config = config or shipped_config("ablation.yaml")
    base = load_run_config(config)
    if write_values is None:  # a cluster's code is in its images; its trainer fills the digests in
        base = base.model_copy(update={"recipe": with_digests(base.recipe)})
    if steps is not None:
        base = base.model_copy(
            update={"budget": base.budget.model_copy(update={"steps": steps, "device_hours": None})}
        )
    variants = choose_variants(base, without, recipe)
    left_behind = settings_left_behind(base.recipe, recipe)
    for name, settings in left_behind.items():
        kept_settings = ", ".join(
            f"{setting} {base_value} (not {recipe_value})"
            for setting, (recipe_value, base_value) in settings.items()
        )
        typer.echo(f"{name}: stays as {base.run} has it: {kept_settings}", err=True)
    if from_folder is not None:
        records = read_set(
            plan(base, variants, num_seeds=seeds, folder=from_folder.absolute()), from_folder
        )
        sys.exit(conclude_set(records, None, as_json=as_json, plot=plot, left_behind=left_behind))
    folder = (folder or base.folder / f"{base.run}-ablation").absolute()
    if budget is not None:
        sweep = make_sweep(base.run, config, folder, seeds, budget)
        source = f"--budget {budget:g}"
        make_plan = partial(plan_runs, sweep, variants, source=source, with_whole=True)
        sys.exit(run_to_the_end(make_plan, as_json=as_json, plot=plot))
    if write_values is not None:
        values_files = write_values_files(
            plan(base, variants, num_seeds=seeds, folder=base.folder), write_values
        )
        answer = {"values": values_files, "left_behind": left_behind}
        report.print_answer(answer, lambda _: typer.echo("\n".join(values_files)), as_json=as_json)
        return
    with ExitStack() as stack:
        if as_json:
            stack.enter_context(redirect_stdout(sys.stderr))
        if go_on:
            check_begun(plan(base, variants, num_seeds=seeds, folder=folder), folder)
        base = with_its_model(base)
        planned = plan(base, variants, num_seeds=seeds, folder=folder)
        records = run_planned(planned, folder, go_on=go_on, run_minutes=run_minutes)
    sys.exit(conclude_set(records, folder, as_json=as_json, plot=plot, left_behind=left_behind))


def make_sweep(run: str, config: Path, folder: Path, seeds: int, budget: float) -> SweepFile:
    """The sweep file of a set of runs. Raises UserError: the budget is no compute."""
    from rollcast.cli.plan.own_curves import check_budget
    from rollcast.config.sweep import SweepBudget, SweepFile

    check_budget(budget)
    hours = SweepBudget(device_hours=budget)
    return SweepFile(sweep=run, base=config, folder=folder, seeds=seeds, budget=hours)


def check_begun(planned: Sequence[PlannedRun], folder: Path) -> None:
    """Raises UserError: there is no set to go on with."""
    from rollcast.runfolder.folder import has_history

    if not any(has_history(item.config.run_folder) for item in planned):
        first = planned[0].config.run
        raise UserError(
            f"--continue: {folder} holds none of the {len(planned)} runs, {first} the first of "
            "them; leave --continue "
            "out to begin, or give the --folder of a set with its --config and --seeds"
        )


def choose_variants(base: RunConfig, without: str | None, recipes: str | None) -> list[Variant]:
    """The rows of the table: the base without each part, then other recipes on the base.

    Raises UserError for a name that is not known, or a part that the base does not have.
    """
    from rollcast.cli.shipped_recipes import recipe_variants
    from rollcast.local.ablation import WHOLE, Variant
    from rollcast.local.ablation_parts import PARTS, find_part

    if without is None and recipes is None:
        without = EVERY_PART
    parts = []
    for name in _names(without):
        parts_of_base = [component for component in PARTS if component.is_in(base.recipe)]
        parts.extend(parts_of_base if name == EVERY_PART else [find_part(name)])
    for component in parts:
        if not component.is_in(base.recipe):
            raise UserError(
                f"--without {component.name}: {base.run} does not have it; leave it out of the list"
            )
    variants = [
        Variant(
            f"without-{component.name.replace('_', '-').replace(':', '-')}",
            f"{component.instead} instead",
            component.without(base.recipe, base.tasks),
        )
        for component in parts
    ]
    variants += recipe_variants(base.recipe, _names(recipes))
    names = [variant.name for variant in variants]
    if not variants or len({*names, WHOLE}) != len(names) + 1:
        raise UserError("--without, --recipe: name at least one part or recipe, and each once")
    return variants


def settings_left_behind(
    base: Recipe, recipes: str | None
) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Recipe -> setting -> its own value and the base's, which stays: what the comparison is not
    about.
    """
    from rollcast.cli.shipped_recipes import find_recipe, is_shipped
    from rollcast.local.ablation_parts import left_behind

    recipe_files = [find_recipe(name) for name in _names(recipes)]
    settings_by_recipe = {
        recipe_file.name: left_behind(
            recipe_file.recipe, base, is_published=is_shipped(recipe_file)
        )
        for recipe_file in recipe_files
    }
    return {name: settings for name, settings in settings_by_recipe.items() if settings}


def run_planned(
    planned: Sequence[PlannedRun], folder: Path, *, go_on: bool, run_minutes: float | None
) -> list[RunRecord]:
    from rollcast.cli.set_view import set_view
    from rollcast.local.ablation import run_set

    with set_view([item.config.run for item in planned]) as view_of:
        return run_set(
            planned,
            folder=folder,
            resume=go_on,
            make_run_view=view_of,
            report=lambda line: typer.echo(line, err=True),
            max_seconds_per_run=None if run_minutes is None else 60.0 * run_minutes,
        )


def conclude_set(
    records: Sequence[RunRecord],
    folder: Path | None,
    *,
    as_json: bool,
    plot: Path | None,
    left_behind: dict[str, dict[str, tuple[Any, Any]]],
) -> int:
    """Print the table and the advice, keep them in the set's folder if there is one; returns the
    exit code.
    """
    from rollcast.cli.ablation_report import make_ablation_answer
    from rollcast.cli.leave_one_out_report import show_leave_one_out
    from rollcast.cli.up import EXIT_GIVEN_UP, EXIT_INTERRUPTED
    from rollcast.local.ablation import write_progress
    from rollcast.runfolder.outcomes import State

    if any(record.state is State.INTERRUPTED for record in records):
        typer.echo("stopped; the same command with --continue goes on", err=True)
        return EXIT_INTERRUPTED
    forecasts, answer = make_ablation_answer(records)
    answer["left_behind"] = left_behind
    if folder is not None:
        write_progress(folder, records, **answer)
    failed_records = [record for record in records if record.state is State.FAILED]
    if as_json:
        echo_json({"set": [asdict(record) for record in records], **answer})
    else:
        show_leave_one_out(answer)
        for line in (*answer["advice"], *answer["notes"]):
            typer.echo(line)
        for record in failed_records:
            typer.echo(f"failed: {record.run}: {record.error}")
        if folder is not None:
            typer.echo(f"runs: {folder}")
    if plot is not None:
        from rollcast.plots.comparison import draw_comparison

        draw_comparison(forecasts, answer, plot)
    return EXIT_GIVEN_UP if failed_records else 0


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
