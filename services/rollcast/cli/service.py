"""`rollcast generator`, `trainer`, `forecaster`: thin starters that become the service's own process."""

from __future__ import annotations

import os
import sys

import typer

SERVICES = ("generator", "trainer", "forecaster")


def add_starter(app: typer.Typer, name: str) -> None:
    """Add a command that hands every argument, --help too, to `python -m rollcast.NAME`."""

    def start(context: typer.Context) -> None:
        arguments = [sys.executable, "-m", f"rollcast.{name}", *context.args]
        os.execv(sys.executable, arguments)  # noqa: S606  # our own module

    start.__doc__ = f"Run one {name} process; `rollcast {name} --help` lists its options."
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, context_settings=settings, add_help_option=False)(start)
