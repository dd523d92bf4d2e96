"""`rollcast`: start here. Each command does its imports when it runs, so that `--help` is fast."""

import sys
from typing import Annotated

import typer

from rollcast import __version__
from rollcast.cli import (
    ablate,
    backtest,
    compare,
    config,
    demo,
    fit,
    init,
    model,
    recipe,
    service,
    show,
    try_out,
    up,
)
from rollcast.cli.once import OnceCommand
from rollcast.cli.output import OutputError, discard_output, tell_output_apart
from rollcast.cli.plan import commands as plan
from rollcast.config.errors import EXIT_FAILED, UserError

app = typer.Typer(
    help="RL training of language models that streams rollouts, bounds staleness and forecasts its own end.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo.demo)
app.command(cls=OnceCommand)(init.init)
app.command("try", cls=OnceCommand)(try_out.try_out)
app.command()(up.up)
app.command()(show.show)
app.command(cls=OnceCommand)(fit.fit)
app.command(cls=OnceCommand)(compare.compare)
app.command(cls=OnceCommand)(backtest.backtest)
app.command()(ablate.ablate)
app.add_typer(recipe.app, name="recipe")
app.add_typer(plan.app, name="plan")
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")
for name in service.EXAMPLES:
    service.add_starter(app, name)


@app.command()
def version() -> None:
    """Print the version.

    \b
    rollcast version
    """
    typer.echo(__version__)


def _print_and_exit(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", is_eager=True, callback=_print_and_exit)
    ] = False,
) -> None:
    """The option `--version` of the whole command."""
    del version  # its callback has answered


def main() -> None:
    """The console script. A user's mistake is one sentence and exit code 2, what may pass by itself 1."""
    tell_output_apart()
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OutputError as error:
        discard_output()
        print(
            f"error: standard output: cannot be written ({error.strerror}); free space, or send it elsewhere",
            file=sys.stderr,
        )
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
