"""`rollcast plan`: what a budget buys, which runs it goes to, which model size, how devices are split and filled."""

import typer

from rollcast.cli.once import OnceCommand
from rollcast.cli.plan.budget import budget
from rollcast.cli.plan.devices import devices
from rollcast.cli.plan.evaluation import evaluation
from rollcast.cli.plan.memory import memory
from rollcast.cli.plan.runs import runs
from rollcast.cli.plan.sizes import sizes

app = typer.Typer(
    help="Plan a run: what a budget buys, which of several runs to stop, which model size, how to split the devices, "
    "what fits their memory, how well an evaluation measures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for command in (budget, runs, sizes, devices, memory, evaluation):
    app.command(cls=OnceCommand)(command)
