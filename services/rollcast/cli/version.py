"""`rollcast version`"""

from typing import Annotated

import typer

from rollcast import __version__


def _print_and_exit(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def option(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", is_eager=True, callback=_print_and_exit)
    ] = False,
) -> None:
    """The option `--version` of the whole command."""
    del version  # its callback has answered


def version() -> None:
    """Print the version.

    \b
    rollcast version
    """
    typer.echo(__version__)
