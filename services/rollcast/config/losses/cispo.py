"""Settings of CISPO."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.losses.settings import LossSettings


class CispoLoss(LossSettings):
    kind: Literal["cispo"] = "cispo"
    """Truncated importance-sampling REINFORCE (Eq 4)."""
    ratio_max: Annotated[float, Field(gt=0)] = 5.0
    """Upper bound of the stop-gradient ratio. The paper finds no difference between 4, 5 and 8 and
    does not state ScaleRL's; 5 is the middle."""
