"""A question to `rollcast sweep decide`."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rollcast.config.bounds import MOST_COMPUTE

PassRate = Annotated[float, Field(ge=0.0, le=1.0)]
Amount = Annotated[float, Field(ge=0.0, le=MOST_COMPUTE)]


class SweepArm(BaseModel):
    """One arm of a question."""

    model_config = ConfigDict(frozen=True)

    name: str
    spent: Annotated[float, Field(ge=0.0, le=1.0)]
    """Compute spent over the end."""
    readings: Annotated[
        tuple[tuple[Amount, PassRate, PassRate | None], ...], Field(max_length=10_000)
    ]
    """Compute, pass rate, standard error or null."""


class SweepQuestion(BaseModel):
    """The present state of a sweep."""

    model_config = ConfigDict(frozen=True)

    arms: Annotated[tuple[SweepArm, ...], Field(min_length=2, max_length=64)]
    """Two of one name are two seeds of one arm."""
    end: Annotated[float, Field(ge=1.0 / MOST_COMPUTE, le=MOST_COMPUTE)]
    """Compute at which the arms are compared."""
    budget_left: Amount
    """Compute that is left, in whole runs to the end."""
    last: bool = False
    """True: nothing more is run."""
    prior: Path | None = None
    """A file of `python -m benchmarks.world_prior`; null = the built-in numbers."""
