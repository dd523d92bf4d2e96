"""Options by which a command knows the devices of a run that it plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LARGEST = 10_000.0
Gpu = Annotated[float | None, typer.Option(min=1, max=LARGEST, help="memory of each GPU, in GB (10^9 bytes)")]
TrainerRanks = Annotated[
    int | None, typer.Option(min=1, max=4_096, help="trainer ranks, one for each GPU; default local.trainer_ranks")
]
ModelConfig = Annotated[
    Path | None, typer.Option(help="the model's config.json, where model.path is not on this machine")
]
