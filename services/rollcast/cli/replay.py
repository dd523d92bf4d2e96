"""`rollcast replay RUN --step N`: compute a recorded step again."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rollcast.cli import curve_options as options


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, such as runs/demo")],
    step: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="a recorded step; N-skipped or N-failed for an update that made no step",
        ),
    ],
    group: Annotated[
        int | None, typer.Option(help="look at this task alone, and list its tokens")
    ] = None,
    as_json: options.AsJson = False,
    loss: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:F", help="the same step with a loss of your own"),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="recipe.X=VALUE", help="the same step with another setting; repeatable"
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="run the code that a record from elsewhere names")
    ] = False,
) -> None:
    """Grade a recorded step again and compute its advantages, loss, gradient and log-probs again:
    which of generator, grader and trainer disagrees with the record, where, and by how much.

    Needs no cluster and no GPU. `record` in the run file decides which steps are kept. Functions
    and model code that the record names run if you recorded it in this folder, or with --trust.

    \b
    rollcast replay runs/demo --step 40
    rollcast replay runs/demo --step 40 --group 1203
    rollcast replay runs/demo --step 40 --set recipe.loss.kind=gspo
    """
    from rollcast.recorded.recorded_index import find_step

    find_step(run, step)
    arguments = [str(run), "--step", step]
    if group is not None:
        arguments += ["--group", str(group)]
    if as_json:
        arguments.append("--json")
    if loss is not None:
        arguments += ["--loss", loss]
    for item in setting or []:
        arguments += ["--set", item]
    if trust:
        arguments.append("--trust")
    sys.stdout.flush()
    program = [sys.executable, "-m", "rollcast.trainer.replay", *arguments]
    os.execv(sys.executable, program)  # noqa: S606  # our own module
