"""`rollcast`: start here. Each command does its imports when it runs, so that `--help` is fast."""

import os
import sys
from typing import Annotated

import typer

from rollcast import __version__
from rollcast.cli import (
    ablate,
    audit,
    backtest,
    compare,
    config,
    demo,
    fit,
    init,
    model,
    queue,
    recipe,
    replay,
    show,
    try_out,
    up,
)
from rollcast.cli.once import OnceCommand
from rollcast.cli.output import OutputError, discard_output, tell_output_apart
from rollcast.cli.plan import batch, budget, devices, evaluation, memory, runs, sizes
from rollcast.cli.sweep import decide, run, values
from rollcast.config.errors import EXIT_FAILED, UserError
from rollcast.config.printable import printable

SERVICE_EXAMPLES = {
    "generator": "rollcast generator --config my-run.yaml --name gpu-3",
    "trainer": "rollcast trainer --config my-run.yaml --resume",
    "forecaster": "rollcast forecaster --config my-run.yaml",
}
app = typer.Typer(
    help=(
        "RL training of language models that streams rollouts, bounds staleness and forecasts its "
        "own end."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
plan = typer.Typer(
    help="Plan a run: what a budget buys, which of several runs to stop, which model size, how "
    "many "
    "rollouts, "
    "prompts and steps, how to split the devices, what fits their memory, how well an evaluation "
    "measures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (
    budget.budget,
    runs.runs,
    sizes.sizes,
    batch.batch,
    devices.devices,
    memory.memory,
    evaluation.evaluation,
):
    plan.command(cls=OnceCommand)(command)
sweep = typer.Typer(
    help="Choose among several arms, recipes or settings, within one budget.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (run.run, values.values, decide.decide):
    sweep.command(cls=OnceCommand)(command)


def _add_starter(name: str) -> None:
    """Add a command that hands every argument, --help too, to `python -m rollcast.NAME`."""

    def start(context: typer.Context) -> None:
        if "--help" in context.args or "-h" in context.args:
            typer.echo(f"Example:\n  {SERVICE_EXAMPLES[name]}\n")
            sys.stdout.flush()
        arguments = [sys.executable, "-m", f"rollcast.{name}", *context.args]
        os.execv(sys.executable, arguments)  # noqa: S606  # our own module

    start.__doc__ = f"Run one {name} process; `rollcast {name} --help` lists its options."
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, context_settings=settings, add_help_option=False)(start)


app.command()(demo.demo)
app.command(cls=OnceCommand)(init.init)
app.command("try", cls=OnceCommand)(try_out.try_out)
app.command()(up.up)
app.command()(show.show)
app.command(cls=OnceCommand)(queue.queue)
app.command(cls=OnceCommand)(audit.audit)
app.command()(replay.replay)
app.command(cls=OnceCommand)(fit.fit)
app.command(cls=OnceCommand)(compare.compare)
app.command(cls=OnceCommand)(backtest.backtest)
app.command()(ablate.ablate)
app.add_typer(recipe.app, name="recipe")
app.add_typer(plan, name="plan")
app.add_typer(sweep, name="sweep")
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")
for name in SERVICE_EXAMPLES:
    _add_starter(name)


@app.command()
def version() -> None:
    """Print the version.

    \b
    rollcast version
    """
    typer.echo(__version__)


def _print_and_exit(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version and exit", is_eager=True, callback=_print_and_exit
        ),
    ] = False,
) -> None:
    """The option `--version` of the whole command."""
    del version  # its callback has answered


def main() -> None:
    """The console script.

    A user's mistake is one sentence and exit code 2, what may pass by itself 1.
    """
    tell_output_apart()
    try:
        app()
    except UserError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OutputError as error:
        discard_output()
        print(
            f"error: standard output: cannot be written ({error.strerror}); free space, or "
            "send it elsewhere",
            file=sys.stderr,
        )
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
