"""What a misspelt or misplaced setting was meant to be."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

ALIKE = 0.75
"""Share of equal letters from which on a name is taken for another, misspelt."""
MOST_OFFERED = 3


def did_you_mean(field: str, schema: type[BaseModel]) -> str:
    """The remedy for a setting that does not exist: one with its name elsewhere, or one spelt nearly like it."""
    if offered := alike(field, _settings(schema)):
        return f"did you mean {' or '.join(offered)}?"
    return "remove it or mend its spelling"


def alike(field: str, settings: tuple[str, ...]) -> list[str]:
    """At most three of `settings` that `field` may have meant: beside it and misspelt, or elsewhere by the same name."""
    parent, _, name = field.rpartition(".")
    parent = ".".join(part for part in parent.split(".") if not part.isdigit())
    beside = {path.rpartition(".")[2]: path for path in settings if path.rpartition(".")[0] == parent}
    near = difflib.get_close_matches(name, beside, MOST_OFFERED, ALIKE)
    if near:
        return [f"{field.rpartition('.')[0]}.{found}".lstrip(".") for found in near]
    elsewhere = [path for path in settings if path.rpartition(".")[2] == name]
    if not elsewhere:
        names = dict.fromkeys(path.rpartition(".")[2] for path in settings)
        near = difflib.get_close_matches(name, names, MOST_OFFERED, ALIKE)
        elsewhere = [path for found in near for path in settings if path.rpartition(".")[2] == found]
    elsewhere.sort(key=lambda path: (path.split(".")[0] != field.split(".")[0], path.count(".")))
    return elsewhere[:MOST_OFFERED]


@functools.cache
def _settings(schema: type[BaseModel]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_paths(schema, "")))


def _paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in _models(field.annotation):
            yield from _paths(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The groups of settings that a field may hold, those in unions and lists too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
