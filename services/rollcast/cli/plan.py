"""`rollcast plan`: what a budget buys, which model size, which split of the devices."""

from __future__ import annotations

import typer

from rollcast.cli import plan_budget, plan_devices, plan_sizes

app = typer.Typer(
    help="Plan a run: what a budget buys, which model size, how to split the devices.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(plan_budget.budget)
app.command()(plan_sizes.sizes)
app.command()(plan_devices.devices)
