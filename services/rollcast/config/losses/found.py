"""All kinds of `recipe.loss`: the settings classes of the modules in this folder, in alphabetical
order of the modules.
"""

import functools
import operator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

import rollcast.config.losses
from rollcast.config.losses.settings import LossSettings


def loss_classes() -> list[type[LossSettings]]:
    """Return the settings classes of all losses."""
    classes: list[type[LossSettings]] = []
    for module_info in iter_modules(
        rollcast.config.losses.__path__, f"{rollcast.config.losses.__name__}."
    ):
        if module_info.name == __name__:
            continue
        module = import_module(module_info.name)
        module_classes = [
            value
            for value in vars(module).values()
            if getattr(value, "__module__", "") == module.__name__
        ]
        classes += [
            value
            for value in module_classes
            if value is not LossSettings and issubclass(value, LossSettings)
        ]
    return classes


if TYPE_CHECKING:
    Loss: TypeAlias = LossSettings
else:
    Loss = Annotated[functools.reduce(operator.or_, loss_classes()), Field(discriminator="kind")]
"""Every loss that a run file may have. Type checkers see the common base class, pydantic the
union."""
