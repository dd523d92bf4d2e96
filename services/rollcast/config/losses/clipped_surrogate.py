"""Settings of the losses that clip the ratio of each token: DAPO, GRPO and the base of the
ablations.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.losses.settings import LossSettings


class DapoLoss(LossSettings):
    kind: Literal["dapo"] = "dapo"
    """Token ratio with asymmetric clip (Eq 8)."""
    clip_low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Lower clip distance (A.16). From 1 on it would clip nothing, a ratio being positive."""
    clip_high: Annotated[float, Field(ge=0)] = 0.26
    """Upper clip distance (A.16; the original DAPO uses 0.28)."""


class GrpoLoss(LossSettings):
    kind: Literal["grpo"] = "grpo"
    """Token ratio with symmetric clip (Eq 7)."""
    clip: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Clip distance (A.16). From 1 on it would clip nothing below, a ratio being positive."""


class BaseLoss(LossSettings):
    kind: Literal["base"] = "base"
    """The loss that the paper's ablations start from (Eq 3), with aggregation `sample` and
    normalisation `prompt`. A token's term is DAPO's; Eq 8 differs by its aggregation, which is a
    switch of its own here."""
    clip_low: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Lower clip distance (A.16). From 1 on it would clip nothing, a ratio being positive."""
    clip_high: Annotated[float, Field(ge=0)] = 0.26
    """Upper clip distance (A.16)."""
