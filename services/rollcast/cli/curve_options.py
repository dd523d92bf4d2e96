"""Options that every command on curves takes."""

from __future__ import annotations

from typing import Annotated

import typer

Compute = Annotated[
    str | None,
    typer.Option(
        help="column of compute since the start: device-hours, steps, tokens, ..; of a Prometheus, expression"
    ),
]
Seconds = Annotated[
    str | None, typer.Option(help="column of the time that passed, which --devices turns into device-hours")
]
Devices = Annotated[float | None, typer.Option(help="number of devices the run had, with --seconds")]
PassRate = Annotated[str | None, typer.Option(help="column of pass rates in [0, 1]; of a Prometheus, expression")]
StandardError = Annotated[str | None, typer.Option(help="column of their standard errors")]
TruncationRatio = Annotated[
    str | None, typer.Option(help="column of the share of answers cut off; the verdict heeds it")
]
Where = Annotated[list[str] | None, typer.Option(help="COLUMN=VALUE that rows must meet; repeatable")]
Scale = Annotated[float, typer.Option(help="times the pass rates of a file; 0.01 for per cent", min=1e-6, max=1e6)]
Run = Annotated[str | None, typer.Option(help="run, where the source holds several")]
Initial = Annotated[float | None, typer.Option(help="pass rate at compute 0, if known")]
ExcludeBefore = Annotated[
    float | None, typer.Option(help="compute to leave out, as the command counts it; default: found")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
CURVE_HELP = (
    "file or folder of a run (CSV, JSON, W&B, TensorBoard, MLflow, TRL, console log), wandb:ENTITY/PROJECT/RUN, or a "
    "Prometheus address"
)
