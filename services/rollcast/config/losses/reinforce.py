"""Settings of REINFORCE."""

from typing import ClassVar, Literal

from rollcast.config.losses.settings import LossSettings


class ReinforceLoss(LossSettings):
    kind: Literal["reinforce"] = "reinforce"
    """A log pi, without a ratio: for reference, with normalisation `leave_one_out` (arXiv
    2402.14740). Not in the paper. Without `corrections.truncation` nothing corrects for tokens of
    older weights, so the schedule must be on-policy: pipeline with max_staleness 0, or
    ppo-off-policy with 1."""
    has_ratio: ClassVar[bool] = False
