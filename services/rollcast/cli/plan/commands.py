"""`rollcast plan`: what a budget buys, which runs it goes to, which model size, which split of the devices."""

from __future__ import annotations

import typer

from rollcast.cli.plan.budget import budget
from rollcast.cli.plan.devices import devices
from rollcast.cli.plan.runs import runs
from rollcast.cli.plan.sizes import sizes

app = typer.Typer(
    help="Plan a run: what a budget buys, which of several runs to stop, which model size, how to split the devices.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(budget)
app.command()(runs)
app.command()(sizes)
app.command()(devices)
