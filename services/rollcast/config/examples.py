"""How a group of settings is written, as one line: shown to who gave something else in its place."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rollcast.config.spelling import kind_of_group

SECRETS = ("password", "token")
"""Parts of the names of settings whose value no sentence shows."""
MAX_CHARACTERS = 160
"""A longer line shows less than it hides."""
_MEANT = {"model": "path", "budget": "steps", "recipe.kl": "coefficient"}
"""The setting that a bare value in place of its group stands for."""


def example(field: str, value: object, groups: Sequence[type[BaseModel]]) -> str:
    """An example of `field` in backticks: a group that contains the meaning of `value`; empty if that is unclear."""
    inner = _of_a_mapping(value, groups) if isinstance(value, Mapping) else _of_a_value(field, value, groups)
    if inner is None or any(part.isdigit() for part in field.split(".")):
        return ""
    settings: Any = inner
    for name in reversed(field.split(".")):
        settings = {name: settings}
    line = yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=1_000_000).strip()[1:-1]
    return f"`{line}`" if len(line) <= MAX_CHARACTERS else ""


def _of_a_mapping(value: Mapping[Any, Any], groups: Sequence[type[BaseModel]]) -> dict[str, Any] | None:
    """The example made with the first kind that accepts all of it."""
    if any(part in SECRETS for name in value for part in str(name).split("_")):
        return None
    wholes = ((group, {"kind": kind_of_group(group), **value}) for group in groups)
    return next((whole for group, whole in wholes if _is_right(group, whole)), None)


def _of_a_value(field: str, value: object, groups: Sequence[type[BaseModel]]) -> dict[str, Any] | None:
    kinds = {kind_of_group(group) for group in groups}
    if isinstance(value, str) and value.lower() in kinds:
        return {"kind": value.lower()}
    name = _MEANT.get(field)
    if name is not None and not isinstance(value, bool | None) and _is_right(groups[0], {name: value}):
        return {name: value}
    return None


def _is_right(group: type[BaseModel], settings: Mapping[str, Any]) -> bool:
    try:
        group.model_validate(settings)
    except ValidationError:
        return False
    return True
