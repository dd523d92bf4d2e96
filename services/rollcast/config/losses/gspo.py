"""Settings of GSPO."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.losses.settings import LossSettings


class GspoLoss(LossSettings):
    kind: Literal["gspo"] = "gspo"
    """Sequence-level ratio, clipped (paper section 3.2)."""
    clip_low: Annotated[float, Field(ge=0, lt=1)] = 3e-3
    """Lower clip distance; 1e-4 is poor, 3e-3 fine (A.17.3). From 1 on it would clip nothing, a
    ratio being positive."""
    clip_high: Annotated[float, Field(ge=0)] = 4e-3
    """Upper clip distance (A.17.3)."""
    length_normalised: bool = True
    """The ratio to the power 1 / length, as in the GSPO paper (arXiv 2507.18071); the clip
    distances above presume it. False is the form that the paper prints."""
