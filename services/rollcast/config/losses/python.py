"""Settings of a loss that is a function of the user's own."""

from typing import Literal

from rollcast.config.custom_function import CustomFunction
from rollcast.config.losses.settings import LossSettings


class CustomLoss(CustomFunction, LossSettings):
    """The function returns J_t [T] of `rollcast.recipe.losses.loss.LossInputs`."""

    kind: Literal["python"] = "python"
    """A function of your own."""
