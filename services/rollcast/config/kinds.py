"""Kinds of a setting that are found by themselves: each module of a folder has the settings of
some.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from rollcast.config.base import Settings

_Group = TypeVar("_Group", bound=Settings)


def find_kinds(package: ModuleType, base: type[_Group]) -> list[type[_Group]]:
    """The subclasses of `base` that the modules of a package define, in alphabetical order of the
    modules, except those that are no kind themselves.
    """
    classes: list[type[_Group]] = []
    for module_info in iter_modules(package.__path__, f"{package.__name__}."):
        if module_info.name.endswith(".found"):  # the module that asks
            continue
        module = import_module(module_info.name)
        classes += [
            value
            for value in vars(module).values()
            if getattr(value, "__module__", "") == module.__name__
            and issubclass(value, base)
            and "kind" in value.model_fields
            and value is not base
        ]
    return classes
