"""What is wrong with a run file, as sentences: the setting as the user wrote it, its value, and what is wanted."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from rollcast.config.spelling import did_you_mean

_SECRETS = ("password", "token")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_KIND = "kind"
PLACEHOLDER = "placeholder"
"""Stands for what is missing, where the rest is looked at all the same."""
_WANTS_A_MAPPING = ("model_type", "model_attributes_type")
_WANTED = {
    "int_type": "needs a whole number",
    "int_parsing": "needs a whole number",
    "int_from_float": "needs a whole number",
    "float_type": "needs a number",
    "float_parsing": "needs a number",
    "finite_number": "needs a finite number",
    "bool_type": "needs true or false",
    "bool_parsing": "needs true or false",
    "string_type": "needs a text",
    "path_type": "needs a path",
    "tuple_type": "needs a list",
    "list_type": "needs a list",
    "dict_type": "needs a mapping of settings",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "choose one of {expected}",
    "string_too_short": "must not be empty",
    "too_short": "needs {min_length} entries at least, and has {actual_length}",
    "too_long": "takes {max_length} entries at most, and has {actual_length}",
}
"""By pydantic's name of the mistake. One that is not here is told in pydantic's words."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """One mistake in a run file."""

    field: str
    """The setting to be mended, as the user writes it: `recipe.loss.clip_low`."""
    sentence: str
    others: tuple[str, ...] = ()
    """Settings that it was held against."""

    def touches(self, field: str) -> bool:
        """Whether it speaks of `field`, of what is in it, or of what holds it."""
        return any(_overlap(field, name) for name in (self.field, *self.others))


def wrong_value(field: str, value: object, sentence: str, *others: str) -> Wrong:
    """`sentence` follows the setting and its value. `others`: settings that it was held against."""
    return Wrong(field, f"{field}{shown(field, value)} is wrong: {sentence}", others)


def shown(field: str, value: object) -> str:
    """The value as a sentence shows it; a secret is not."""
    if any(part in _SECRETS for part in field.split(".")):
        return " (not shown)"
    return "" if isinstance(value, dict) else f" = {_SHORT.repr(value)}"


def described(item: ErrorDetails, data: Mapping[str, Any], schema: type[BaseModel]) -> Wrong:
    """One of pydantic's errors on `data`, the settings as they were read, held against `schema`."""
    field, kind, context = written(item["loc"], data), item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return Wrong(field, f"{field} is not a setting; {did_you_mean(field, schema)}")
    if kind == "missing":
        return Wrong(field, f"{field} is missing; add it")
    if kind == "union_tag_not_found":
        return Wrong(f"{field}.{_KIND}", f"{field}.{_KIND} is missing; add it")
    if kind == "union_tag_invalid":
        expected = str(context["expected_tags"]).replace("'", "")
        return wrong_value(f"{field}.{_KIND}", context["tag"], f"choose one of {expected}")
    if kind in _WANTS_A_MAPPING:
        return Wrong(field, f"{field} holds {type(item['input']).__name__}, needs a mapping of settings")
    if kind == "string_pattern_mismatch":
        return wrong_value(field, item["input"], f"must match {context['pattern']}")
    if kind == "too_short" and context["min_length"] == 1:
        return wrong_value(field, item["input"], "must not be empty")
    if kind in _WANTED:
        return wrong_value(field, item["input"], _WANTED[kind].format(**context))
    message = item["msg"].removeprefix("Value error, ")
    return wrong_value(field, item["input"], f"{message[:1].lower()}{message[1:]}")


def written(location: Sequence[int | str], data: Mapping[str, Any]) -> str:
    """The path of a setting as the user wrote it: pydantic puts the `kind` of a group into it, which nobody writes."""
    parts: list[str] = []
    place: Any = data
    for part in location:
        if isinstance(place, Mapping) and part not in place and part == place.get(_KIND):
            continue
        parts.append(str(part))
        if isinstance(place, Mapping):
            place = place.get(part)
        elif isinstance(place, Sequence) and isinstance(part, int) and part < len(place):
            place = place[part]
        else:
            place = None
    return ".".join(parts) or "the whole file"


def without(data: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> dict[str, Any]:
    """`data` without what pydantic refused, so that the rest can be looked at; what is missing is filled in."""
    mended: dict[str, Any] = copy.deepcopy(dict(data))
    for item in errors:
        field = written(item["loc"], mended)
        if item["type"] == "missing":
            _put(mended, field.split("."), PLACEHOLDER)
        else:
            _drop(mended, field.split("."))
    return mended


def _put(settings: Any, path: list[str], value: str) -> None:
    holder = _holder(settings, path)
    if isinstance(holder, dict):
        holder[path[-1]] = {"path": value} if path == ["model"] else value


def _drop(settings: Any, path: list[str]) -> None:
    """Entries of a list go with the whole list: another one in their place would shift the others' names."""
    while path and isinstance(_holder(settings, path), list):
        path = path[:-1]
    holder = _holder(settings, path)
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def _holder(settings: Any, path: list[str]) -> Any:
    for part in path[:-1]:
        if isinstance(settings, dict):
            settings = settings.get(part)
        elif isinstance(settings, list) and part.isdigit() and int(part) < len(settings):
            settings = settings[int(part)]
        else:
            return None
    return settings


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
