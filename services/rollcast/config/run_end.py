"""Settings that decide when a run ends."""

from typing import Annotated

from pydantic import Field

from rollcast.config.base import Settings


class Budget(Settings):
    """When the run ends: at the first of these."""

    steps: Annotated[int, Field(ge=1)] | None = None
    """Optimizer steps. None = no bound."""
    device_hours: Annotated[float, Field(gt=0)] | None = None
    """Compute of the surviving history (GPU-hours; core-hours on CPU). None = no bound."""
    endless: bool = False
    """The run has no bound on purpose: Ctrl-C, or stop_when, ends it. Off: a run without a bound is
    refused at its start."""


class StopWhen(Settings):
    """Ends the run by itself when the rest of its budget is not worth it; judged at every
    evaluation.

    On three evaluations in a row the verdict has to be broken, or no_learning in the second half of
    the budget, or one of these conditions has to hold.
    """

    least_gain: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Pass rate. Stop when the rest of the budget gains less, at the upper end of the forecast's 90
    % interval, whatever the verdict, once the curve has ten evaluations: a run that learns nothing
    ends as well. 0 = never for this reason. 0.01 is half of the margin within which the paper calls
    two runs equal."""
    on_saturated: bool = True
    """Stop on the verdict saturated as well: a gain of 0.03 until twice the compute then has a
    chance below 10 %."""
