"""Mistakes in a run file as sentences: the setting as the user wrote it, its value,
and the remedy.
"""

import copy
import functools
import json
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from rollcast.config.base import IN_WORDS
from rollcast.config.engine_arguments import refused_argument
from rollcast.config.examples import SECRETS, example, with_value
from rollcast.config.other_names import Counterpart, counterpart, names_within, removed_setting
from rollcast.config.printable import without_credentials
from rollcast.config.spelling import did_you_mean, groups_at, is_elsewhere_or_near, kind_of_group

_SHORT = reprlib.Repr()
MAX_SHOWN_CHARS = 200
"""Longest name or value of a setting in a sentence."""
_SHORT.maxstring = _SHORT.maxother = MAX_SHOWN_CHARS
_KIND = "kind"
PLACEHOLDER = "placeholder"
"""Takes the place of a missing setting, so that the rest can be checked."""
_WANTS_A_MAPPING = ("model_type", "model_attributes_type")
_WANTS_A_LIST = ("tuple_type", "list_type")
_WANTED = {
    "int_type": "needs a whole number",
    "int_parsing": "needs a whole number",
    "int_from_float": "needs a whole number",
    "int_parsing_size": "needs a smaller whole number",
    "float_type": "needs a number",
    "float_parsing": "needs a number",
    "finite_number": "needs a finite number",
    "bool_type": "needs true or false",
    "bool_parsing": "needs true or false",
    "string_type": "needs a text",
    "path_type": "needs a path",
    "date_type": "needs a date, such as 2025-02-01",
    "date_from_datetime_parsing": "needs a date, such as 2025-02-01",
    "date_from_datetime_inexact": "needs a date without a time, such as 2025-02-01",
    "tuple_type": "needs a list",
    "list_type": "needs a list",
    "dict_type": "needs a mapping of settings",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "choose one of {expected}",
    "string_too_short": "must not be empty",
    "string_too_long": "takes {max_length} characters at most",
    "too_short": "needs {min_length} entries at least, and has {actual_length}",
    "too_long": "takes {max_length} entries at most, and has {actual_length}",
}
"""By pydantic's name of the mistake: every one that a setting can be refused with."""
Contradiction = tuple[str, ...]
"""What a rule across settings yields: the setting to fix, what follows it and its value in the
sentence, and the settings that it was compared with."""
_KINDS = (
    (str, "a text"),
    (bool, "true or false"),
    (int | float, "a number"),
    (list | tuple, "a list"),
    (dict, "a mapping"),
    (type(None), "nothing"),
)


@dataclass(frozen=True, slots=True)
class Wrong:
    """One mistake in a run file."""

    field: str
    """The setting to fix, as the user writes it: `recipe.loss.clip_low`."""
    reason: str
    """End of the sentence, after the setting and its value."""
    value: str = ""
    """Value of the setting, as the sentence shows it."""
    related_fields: tuple[str, ...] = ()
    """Settings that it was compared with, or that were meant."""

    @property
    def sentence(self) -> str:
        is_short = len(self.field) <= MAX_SHOWN_CHARS
        field = self.field if is_short else f"{self.field[:MAX_SHOWN_CHARS]}.."
        return f"{field}{self.value} {self.reason}"

    def touches(self, other_mistake: "Wrong") -> bool:
        """Whether both are about one setting, or one setting contains the other."""
        return any(
            overlap(own_field, other_field)
            for own_field in (self.field, *self.related_fields)
            for other_field in (other_mistake.field, *other_mistake.related_fields)
        )

    def repeats(self, earlier: "Wrong") -> bool:
        """Whether the setting was spoken of already.

        Two wrong names of one setting are two mistakes.
        """
        earlier_fields = (earlier.field, *earlier.related_fields)
        return any(overlap(self.field, earlier_field) for earlier_field in earlier_fields) or any(
            overlap(related_field, earlier.field) for related_field in self.related_fields
        )

    def blaming_what_is_written(
        self, data: Mapping[str, Any], filled_in: Collection[str] = ()
    ) -> "Wrong":
        """This mistake, worded for the settings that the user wrote: `data` is the settings as they
        were read.

        If its value is a default or was filled in, the sentence says so and begins with a setting
        that the user did give.
        """
        if not self.value or is_written(self.field, data):
            return self
        origin = "filled in" if self.field in filled_in else "the default"
        blamed = next(
            (
                related_field
                for related_field in self.related_fields
                if is_written(related_field, data)
            ),
            None,
        )
        if blamed is None:
            return replace(self, value=f"{self.value}, {origin},")
        reason = (
            f"does not go with {self.field}{self.value}, {origin}: "
            f"{self.reason.removeprefix('is wrong: ')}"
        )
        path = blamed.split(".")
        return Wrong(
            blamed,
            reason,
            format_value(blamed, _holder(data, path)[path[-1]]),
            (self.field, *self.related_fields),
        )


def wrong_value(field: str, value: object, sentence: str, *related_fields: str) -> Wrong:
    """`sentence` follows the setting and its value.

    `related_fields`: settings that it was compared with.
    """
    return Wrong(field, f"is wrong: {sentence}", format_value(field, value), related_fields)


def with_prefix(group: str, contradictions: Iterable[Contradiction]) -> Iterator[Contradiction]:
    """Contradictions whose settings are named from a group on, with the whole names."""
    for field, sentence, *related_fields in contradictions:
        yield (f"{group}.{field}", sentence, *(f"{group}.{name}" for name in related_fields))


def format_value(field: str, value: object) -> str:
    """The value as a sentence shows it; a secret is not."""
    if any(segment in SECRETS for segment in field.split(".")):
        return " (not shown)"
    if isinstance(value, bool | None):
        return f" = {json.dumps(value)}"
    if isinstance(value, date):
        return f" = {value}"
    return "" if isinstance(value, dict) else without_credentials(f" = {_SHORT.repr(value)}")


def type_in_words(value: object) -> str:
    """The kind of a YAML or JSON value, for sentences; for other values the name
    of Python's class.
    """
    return next((words for kind, words in _KINDS if isinstance(value, kind)), type(value).__name__)


def is_written(field: str, data: Mapping[str, Any]) -> bool:
    """Whether the user gave the setting."""
    path = field.split(".")
    holder = _holder(data, path)
    return path[-1] in holder if isinstance(holder, dict) else isinstance(holder, list)


def find_mistakes(
    item: ErrorDetails, data: Mapping[str, Any], schema: type[BaseModel]
) -> Iterator[Wrong]:
    """The mistakes behind one of pydantic's errors on `data`, the settings as they were read. They
    are yielded one by one, since finding the intended setting takes a while.

    pydantic does not look into a group without its `kind`; names that no kind has are reported here
    as well.
    """
    if item["type"] == "extra_forbidden":
        yield from _unknown(item, data, schema)
        return
    if item["type"] != "union_tag_not_found":
        yield _make_mistake(item, data, schema)
        return
    field = setting_path(item["loc"], data)
    groups = groups_at(item["loc"], schema)
    kinds = ", ".join(str(kind_of_group(group)) for group in groups)
    unknown = _unknown_names(item, groups)
    such_as = _such_as(
        field, {name: item["input"][name] for name in item["input"] if name not in unknown}, groups
    )
    yield Wrong(
        f"{field}.{_KIND}", f"is missing; choose one of {kinds}{such_as}", related_fields=(field,)
    )
    for name in unknown:
        yield _no_setting(f"{field}.{name}", item["input"].get(name), groups, schema)


def num_described(item: ErrorDetails, schema: type[BaseModel]) -> int:
    """How many mistakes `find_mistakes` reports, at least."""
    is_group = item["type"] == "union_tag_not_found"
    return 1 + (len(_unknown_names(item, groups_at(item["loc"], schema))) if is_group else 0)


def _unknown_names(item: ErrorDetails, groups: Sequence[type[BaseModel]]) -> list[str]:
    known_names = {name for group in groups for name in group.model_fields}
    return [name for name in map(str, item["input"]) if name not in known_names]


def _such_as(
    field: str, value: object, groups: Sequence[type[BaseModel]], *, in_list: bool = False
) -> str:
    shown_example = example(field, value, groups, in_list=in_list)
    return f", such as {shown_example}" if shown_example else ""


def _unknown(item: ErrorDetails, data: Mapping[str, Any], schema: type[BaseModel]) -> list[Wrong]:
    """A setting that does not exist; of a group that other systems have, each of its settings that
    is known.
    """
    field = setting_path(item["loc"], data)
    groups = groups_at(item["loc"][:-1], schema)
    if (refused := refused_argument(field)) is not None:
        return [Wrong(field, refused[0], related_fields=refused[1])]
    if not is_elsewhere_or_near(field, groups, schema):
        # 20: names that are answered of one unknown group.
        within = islice(names_within(field, item["input"]), 20)
        if mistakes := [_elsewhere(name, value, entry, schema) for name, value, entry in within]:
            return mistakes
    return [_no_setting(field, item["input"], groups, schema)]


def _elsewhere(field: str, value: object, entry: Counterpart, schema: type[BaseModel]) -> Wrong:
    """The setting here with the user's value, if it means the same and is right."""
    line = ""
    if entry.can_reuse_value(field):
        groups = groups_at(entry.setting.split(".")[:-1], schema)
        line = with_value(entry.example, entry.setting, value, groups)
    return Wrong(
        field, entry.sentence(line), related_fields=(entry.setting,) if entry.setting else ()
    )


def _no_setting(
    field: str, value: object, groups: Sequence[type[BaseModel]], schema: type[BaseModel]
) -> Wrong:
    if (removed := removed_setting(field)) is not None:
        return Wrong(field, removed.sentence)
    if (
        not is_elsewhere_or_near(field, groups, schema)
        and (entry := counterpart(field)) is not None
    ):
        return _elsewhere(field, value, entry, schema)
    remedy, meant = did_you_mean(field, groups, schema)
    return Wrong(field, f"is not a setting; {remedy}", related_fields=meant)


def _make_mistake(item: ErrorDetails, data: Mapping[str, Any], schema: type[BaseModel]) -> Wrong:
    field = setting_path(item["loc"], data)
    kind = item["type"]
    context = item.get("ctx", {})
    if kind == "missing":
        return Wrong(field, "is missing; add it")
    if kind == "union_tag_invalid":
        expected = str(context["expected_tags"]).replace("'", "")
        return wrong_value(
            f"{field}.{_KIND}", item["input"][_KIND], f"choose one of {expected}", field
        )
    if kind in _WANTS_A_MAPPING:
        such_as = _such_as(field, item["input"], groups_at(item["loc"], schema))
        return Wrong(
            field, f"holds {type_in_words(item['input'])}, needs a mapping of settings{such_as}"
        )
    if kind == "string_pattern_mismatch":
        return wrong_value(field, item["input"], IN_WORDS[context["pattern"]])
    if kind == "too_short" and context["min_length"] == 1:
        return wrong_value(field, item["input"], "must not be empty")
    if kind in _WANTED:
        plain = {name: _plain(value) for name, value in context.items()}
        groups = groups_at(item["loc"], schema) if kind in _WANTS_A_LIST else []
        such_as = _such_as(field, item["input"], groups, in_list=True) if groups else ""
        return wrong_value(field, item["input"], _WANTED[kind].format(**plain) + such_as)
    return wrong_value(
        field, item["input"], "cannot be used; `rollcast config schema` says what can"
    )


def _plain(value: object) -> object:
    """A bound or a choice without Python's marks: 0 for 0.0, no quotes, true for True."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    return value.replace("'", "").replace("True", "true").replace("False", "false")


def setting_path(location: Sequence[int | str], data: Mapping[str, Any]) -> str:
    """The path of a setting as the user wrote it: pydantic adds the `kind` of a group, which users
    do not write.
    """
    parts: list[str] = []
    node: Any = data
    is_kind_told = False
    for segment in location:
        # Once for each group, because a group may have a setting of the same name: `tools` of the
        # kind tools.
        if isinstance(node, Mapping) and not is_kind_told and segment == node.get(_KIND):
            is_kind_told = True
            continue
        parts.append(str(segment))
        node = _inside(node, str(segment))
        is_kind_told = False
    return ".".join(parts) or "the whole file"


def without(data: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> dict[str, Any]:
    """`data` without what pydantic refused, so that the rest can be checked; missing settings are
    filled in.
    """
    remaining: dict[str, Any] = copy.deepcopy(dict(data))
    for item in errors:
        path = setting_path(item["loc"], remaining).split(".")
        holder = _holder(remaining, path)
        if item["type"] != "missing":
            _drop(remaining, path)
        elif isinstance(holder, dict):
            holder[path[-1]] = {"path": PLACEHOLDER} if path == ["model"] else PLACEHOLDER
    return remaining


def _drop(settings: Any, path: list[str]) -> None:
    """Entries of a list go with the whole list: another one in their place would shift the others'
    names.
    """
    while path and isinstance(_holder(settings, path), list):
        path = path[:-1]
    holder = _holder(settings, path)
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def _holder(settings: Any, path: list[str]) -> Any:
    return functools.reduce(_inside, path[:-1], settings)


def _inside(node: Any, segment: str) -> Any:
    """The value under a name or at an index; None if it is missing."""
    if isinstance(node, Mapping):
        return node.get(segment)
    if isinstance(node, list) and segment.isdigit() and int(segment) < len(node):
        return node[int(segment)]
    return None


def overlap(first_field: str, second_field: str) -> bool:
    """Whether two names are of one setting, or one is of a group that holds the other."""
    return f"{first_field}.".startswith(f"{second_field}.") or f"{second_field}.".startswith(
        f"{first_field}."
    )
