"""`rollcast generator`, `trainer`, `forecaster`: thin starters that become the service's own process."""

import os
import sys

import typer

EXAMPLES = {
    "generator": "rollcast generator --config my-run.yaml --name gpu-3",
    "trainer": "rollcast trainer --config my-run.yaml --resume",
    "forecaster": "rollcast forecaster --config my-run.yaml",
}


def add_starter(app: typer.Typer, name: str) -> None:
    """Add a command that hands every argument, --help too, to `python -m rollcast.NAME`."""

    def start(context: typer.Context) -> None:
        if "--help" in context.args or "-h" in context.args:
            typer.echo(f"Example:\n  {EXAMPLES[name]}\n")
            sys.stdout.flush()
        arguments = [sys.executable, "-m", f"rollcast.{name}", *context.args]
        os.execv(sys.executable, arguments)  # noqa: S606  # our own module

    start.__doc__ = f"Run one {name} process; `rollcast {name} --help` lists its options."
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, context_settings=settings, add_help_option=False)(start)
