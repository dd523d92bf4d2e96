"""Makes the loss that the recipe names."""

from importlib import import_module

from rollcast.config.losses.settings import LossSettings
from rollcast.recipe.losses.loss import Loss


def make_loss(settings: LossSettings) -> Loss:
    """Return the loss that the recipe names: `make` of the module that is named like the one of its
    settings.
    """
    name = type(settings).__module__.rpartition(".")[2]
    loss: Loss = import_module(f"rollcast.recipe.losses.{name}").make(settings)
    return loss
