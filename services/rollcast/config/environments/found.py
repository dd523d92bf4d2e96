"""All kinds of `tasks.environments`: the settings classes of the modules in this folder, in
alphabetical order of them.
"""

import functools
import operator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

import rollcast.config.environments
from rollcast.config.environments.settings import EnvironmentSettings


def environment_classes() -> list[type[EnvironmentSettings]]:
    """Return the settings classes of all environments."""
    classes: list[type[EnvironmentSettings]] = []
    for module_info in iter_modules(
        rollcast.config.environments.__path__, f"{rollcast.config.environments.__name__}."
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
            if issubclass(value, EnvironmentSettings) and "kind" in value.model_fields
        ]
    return classes


if TYPE_CHECKING:
    EnvironmentOfRun: TypeAlias = EnvironmentSettings
else:
    EnvironmentOfRun = Annotated[
        functools.reduce(operator.or_, environment_classes()), Field(discriminator="kind")
    ]
"""Every environment that a run file may have. Type checkers see the common base class, pydantic the
union."""
