"""An example of a group of settings, for the sentence on another value in its place."""

import functools
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rollcast.config.other_names import example_of_setting
from rollcast.config.spelling import kind_of_group

SECRETS = ("password", "token")
"""Parts of the names of settings whose value no sentence shows."""
MAX_EXAMPLE_CHARACTERS = 160
"""A longer line shows less than it hides."""
_MEANT = {
    "model": "path",
    "model.lora": "rank",
    "budget": "steps",
    "stop_when": "least_gain",
    "recipe.kl": "coefficient",
    "recipe.optimizer": "learning_rate",
}
"""The setting that a bare value in place of its group stands for."""
_FUNCTIONS = ("function", "code")
"""Settings of groups that are a function of the user's own."""
_EXPONENT = re.compile(r"[+-]?[0-9]{1,20}e[+-]?[0-9]{1,3}", re.IGNORECASE)


def example(
    field: str, value: object, groups: Sequence[type[BaseModel]], *, in_list: bool = False
) -> str:
    """An example of `field` in backticks: a group that contains the meaning of `value`, else any;
    empty if none is known.

    in_list: the setting is a list of such groups.
    """
    name, _, index = field.rpartition(".")
    if index.isdigit():
        return example(name, value, groups, in_list=True)
    if any(segment.isdigit() for segment in field.split(".")) or (
        isinstance(value, Mapping) and _has_secret(value)
    ):
        return ""
    meaning = next(_meanings(field, value, groups), None)
    line = _line(field, [meaning] if in_list else meaning) if meaning is not None else ""
    if not line and not isinstance(value, Mapping | None):
        line = example_of_setting(field) or next(
            (_line(field, default_value) for default_value in _defaults(groups) if not in_list), ""
        )
    return f"`{line}`" if 0 < len(line) <= MAX_EXAMPLE_CHARACTERS else ""


def with_value(
    example_line: str, setting: str, value: object, groups: Sequence[type[BaseModel]]
) -> str:
    """The example of a setting of `groups`, with this value instead; empty if none of them accepts
    the value.
    """
    *path, name = setting.split(".")
    parsed_value = _as_number(value)
    if not any(
        name in group.model_fields and _accepts(group, name, parsed_value) for group in groups
    ):
        return ""
    settings = yaml.safe_load(example_line)
    functools.reduce(operator.getitem, path, settings)[name] = parsed_value
    line = _in_one_line(settings)
    return line if len(line) <= MAX_EXAMPLE_CHARACTERS else ""


def _line(field: str, value: object) -> str:
    settings: Any = value
    for name in reversed(field.split(".")):
        settings = {name: settings}
    return _in_one_line(settings)


def _in_one_line(settings: Mapping[str, Any]) -> str:
    return str(
        yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=1_000_000)
    ).strip()[1:-1]


def _meanings(
    field: str, value: object, groups: Sequence[type[BaseModel]]
) -> Iterator[dict[str, Any]]:
    """Settings that the user may have meant by the value, the likeliest first."""
    if isinstance(value, Mapping):
        candidates = ((group, {"kind": kind_of_group(group), **value}) for group in groups)
        yield from (
            group_settings
            for group, group_settings in candidates
            if _is_right(group, group_settings)
        )
    if isinstance(value, str) and value.lower() in {kind_of_group(group) for group in groups}:
        yield {"kind": value.lower()}
    if isinstance(value, str):
        yield from _text_meanings(value, groups)
    name = _MEANT.get(field)
    if name is not None and not isinstance(value, bool | None):
        parsed_value = _as_number(value)
        yield from (
            {name: parsed_value} for group in groups[:1] if _is_right(group, {name: parsed_value})
        )


def _text_meanings(value: str, groups: Sequence[type[BaseModel]]) -> Iterator[dict[str, Any]]:
    """Groups with a function of the user's own, or with a file of their kind; named after it if
    they need a name.
    """
    for group in groups:
        kind = kind_of_group(group)
        settings = [setting for setting in _FUNCTIONS if ":" in value]
        if value.endswith(f".{kind}"):
            settings.append("path")
        name = {"name": Path(value.rpartition(":")[2]).stem} if "name" in group.model_fields else {}
        for setting in settings:
            section = {"kind": kind, **name, setting: value}
            if setting in group.model_fields and _is_right(group, section):
                yield section


def _defaults(groups: Sequence[type[BaseModel]]) -> Iterator[dict[str, Any]]:
    """The first kind, or the first setting with a plain default, of groups that need no more."""
    for group in groups:
        for name, field in group.model_fields.items():
            settings = {name: field.default}
            if isinstance(field.default, str | int | float) and _is_right(group, settings):
                yield settings


def _as_number(value: object) -> object:
    """1e-6 without a point is a text in YAML."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _has_secret(value: Mapping[Any, Any]) -> bool:
    return any(word in SECRETS for name in value for word in str(name).split("_"))


def _accepts(group: type[BaseModel], name: str, value: object) -> bool:
    """Whether this setting is right, whatever else the group needs. pydantic would take true for
    1.
    """
    if isinstance(value, bool) and group.model_fields[name].annotation is not bool:
        return False
    try:
        group.model_validate({name: value})
    except ValidationError as error:
        return all(item["loc"][:1] != (name,) for item in error.errors())
    return True


def _is_right(group: type[BaseModel], settings: Mapping[str, Any]) -> bool:
    try:
        group.model_validate(settings)
    except ValidationError:
        return False
    return True
