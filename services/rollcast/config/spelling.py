"""Settings that a misspelt or misplaced one may have meant."""

import difflib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel

MIN_NAME_SIMILARITY = 0.75
"""Share of equal letters from which on a name is taken for another, misspelt."""
MOST_OFFERED = 3


def is_elsewhere_or_near(
    field: str, groups: Sequence[type[BaseModel]], schema: type[BaseModel]
) -> bool:
    """Whether another kind of its group has the setting, or its group has one that differs by a
    letter or two.
    """
    name = field.rpartition(".")[2]
    beside = [setting for group in groups for setting in group.model_fields]
    return _without_numbers(field) in list_setting_names(schema) or bool(
        # This share for a name that other systems have: `beta` among the optimizer's settings is
        # `betas`
        difflib.get_close_matches(name, beside, 1, 0.85)
    )


def did_you_mean(
    field: str, groups: Sequence[type[BaseModel]], schema: type[BaseModel]
) -> tuple[str, tuple[str, ...]]:
    """The remedy for a setting that does not exist, and the settings that it offers: one of the
    same group (`groups`, as they are left by its `kind`) spelt nearly like it, or one elsewhere."""
    beside = list(dict.fromkeys(name for group in groups for name in group.model_fields))
    offered = _close_neighbours(field, beside) or _elsewhere(field, list_setting_names(schema))
    if not offered:
        return "remove it or correct its spelling", ()
    if _without_numbers(field) in offered:
        return "another kind has it; remove it or change kind", (field,)
    return f"did you mean {' or '.join(offered)}?", tuple(offered)


def groups_at(location: Sequence[int | str], schema: type[BaseModel]) -> list[type[BaseModel]]:
    """The groups of settings that are possible at pydantic's `location`; a single one if it
    contains the `kind`.
    """
    groups = [schema]
    for segment in location:
        if isinstance(segment, int):
            continue
        fields = [model.model_fields[segment] for model in groups if segment in model.model_fields]
        inner = [group for field in fields for group in _models(field.annotation)]
        groups = inner or [group for group in groups if kind_of_group(group) == segment]
    return groups


def kind_of_group(group: type[BaseModel]) -> str | None:
    """The `kind` of a group of settings; None if there is only one."""
    return str(group.model_fields["kind"].default) if "kind" in group.model_fields else None


def _close_neighbours(field: str, names: list[str]) -> list[str]:
    """Names among its neighbours `names` that `field` may have meant: misspelt, or a part of the
    name alone.
    """
    parent, _, name = field.rpartition(".")
    words = set(name.split("_"))
    close_names = difflib.get_close_matches(name, names, MOST_OFFERED, MIN_NAME_SIMILARITY)
    close_names = close_names or [
        known_name
        for known_name in names
        if words <= set(known_name.split("_")) or known_name.startswith(name)
    ]
    return [f"{parent}.{close_name}".lstrip(".") for close_name in close_names[:MOST_OFFERED]]


def _elsewhere(field: str, settings: tuple[str, ...]) -> list[str]:
    name = field.rpartition(".")[2]
    elsewhere = [path for path in settings if path.rpartition(".")[2] == name]
    if not elsewhere:
        names = dict.fromkeys(path.rpartition(".")[2] for path in settings)
        close_names = difflib.get_close_matches(name, names, MOST_OFFERED, MIN_NAME_SIMILARITY)
        elsewhere = [
            path
            for close_name in close_names
            for path in settings
            if path.rpartition(".")[2] == close_name
        ]
    elsewhere = [
        path
        for path in elsewhere
        if not any(path.startswith(f"{group_path}.") for group_path in elsewhere)
    ]
    elsewhere.sort(key=lambda path: (path.split(".")[0] != field.split(".")[0], path.count(".")))
    return elsewhere[:MOST_OFFERED]


def _without_numbers(field: str) -> str:
    return ".".join(segment for segment in field.split(".") if not segment.isdigit())


@functools.cache
def list_setting_names(schema: type[BaseModel]) -> tuple[str, ...]:
    """The dotted name of every setting and group, of every kind."""
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
