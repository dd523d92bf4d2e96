"""The commands of `rollcast sweep`."""

import typer

from rollcast.cli.once import OnceCommand
from rollcast.cli.sweep import run, values

app = typer.Typer(
    help="Spend one budget on many recipes: the forecast says which of them goes on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(cls=OnceCommand)(run.run)
app.command(cls=OnceCommand)(values.values)
