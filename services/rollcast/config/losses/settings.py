"""Settings that every loss has."""

from typing import ClassVar

from rollcast.config.base import Settings


class LossSettings(Settings):
    """Settings of one loss.

    The module of the same name in `rollcast.recipe.losses` has its formula.
    """

    kind: str
    """Name of the loss in a run file."""
    has_ratio: ClassVar[bool] = True
    """Whether the objective contains the ratio pi_train / pi_gen, which corrects for tokens of
    older weights."""
