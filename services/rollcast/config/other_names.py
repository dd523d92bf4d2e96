"""Names of settings that users bring from other systems, and what each is here: `other_names.yaml`.

docs/reference/other-names.md is made of that table, too. Settings that Rollcast no longer has are
in `removed_settings.yaml`, as run files of earlier versions name them.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

TABLE = Path(__file__).with_suffix(".yaml")
ALL = "all"
"""The word of the table for every name of an entry."""
MAX_DEPTH = 8
"""Levels of such a group; those of the other systems have five."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A setting of earlier versions."""

    accepted: object
    """The value with the meaning of today: resolved run files of earlier versions contain it."""
    reason: str
    """Behavior of today, and the setting to use instead."""

    @property
    def sentence(self) -> str:
        """The end of a sentence that begins with the name."""
        return f"is not a setting any more: {self.reason}; remove it"


@functools.cache
def removed_settings() -> dict[str, Removed]:
    """By dotted name, without the places in lists."""
    table = yaml.safe_load(TABLE.with_name("removed_settings.yaml").read_text(encoding="utf-8"))
    return {field: Removed(**entry) for field, entry in table.items()}


@dataclass(frozen=True, slots=True)
class Counterpart:
    names: tuple[str, ...]
    setting: str = ""
    """The dotted name here; empty = not supported."""
    example: str = ""
    """One line of a run file."""
    same_value: tuple[str, ...] = ()
    """Names, of `names`, whose value means the same here. `all` stands for every one."""
    reason: str = ""
    """Why it is not supported, and the replacement."""
    page: str = "docs/other-systems.md"
    """The page that describes why."""

    def sentence(self, line: str = "") -> str:
        """The end of a sentence that begins with the name. `line`: of a run file, with the user's
        own value; empty = the example."""
        if self.setting:
            return f"is not a setting; here it is {self.setting}: `{line or self.example}`"
        return f"is not supported: {self.reason} ({self.page})"

    def can_reuse_value(self, field: str) -> bool:
        """Whether the value of a setting that goes by one of these names can be taken over."""
        return self.same_value == (ALL,) or any(name in self.same_value for name in _ends(field))


@functools.cache
def counterparts() -> tuple[Counterpart, ...]:
    """The whole table, read when a run file has a name that is not a setting."""
    return TypeAdapter(tuple[Counterpart, ...]).validate_python(
        yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    )


@functools.cache
def _by_name() -> dict[str, Counterpart]:
    return {name: entry for entry in counterparts() for name in entry.names}


def counterpart(field: str) -> Counterpart | None:
    """The entry for the longest known end of a dotted name; None if no end is known."""
    return next((_by_name()[end] for end in _ends(field) if end in _by_name()), None)


def example_of_setting(setting: str) -> str:
    """One line of a run file with a setting or group that other systems have too; empty if none is
    known.
    """
    return next((entry.example for entry in counterparts() if entry.setting == setting), "")


def _ends(field: str) -> list[str]:
    """The ends of a dotted name, the longest first."""
    parts = [
        segment.replace("-", "_").lower() for segment in field.split(".") if not segment.isdigit()
    ]
    return [".".join(parts[start:]) for start in range(len(parts))]


def names_within(
    field: str, value: Any, depth: int = MAX_DEPTH
) -> Iterator[tuple[str, Any, Counterpart]]:
    """The settings of an unknown group that are known names, each with its value and its
    counterpart here.
    """
    if not isinstance(value, Mapping) or depth == 0:
        return
    for name, inner in value.items():
        inner_field = f"{field}.{name}"
        deeper_names = list(names_within(inner_field, inner, depth - 1))
        if deeper_names:
            yield from deeper_names
        elif (entry := counterpart(inner_field)) is not None:
            yield inner_field, inner, entry


def removed_setting(field: str) -> Removed | None:
    """The entry for a setting that an earlier version had."""
    return removed_settings().get(".".join(name for name in field.split(".") if not name.isdigit()))


def without_ignored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without removed ones that have no effect."""
    return _without_removed(data, lambda field, value: value == removed_settings()[field].accepted)


def without_removed(data: Mapping[str, Any], dropped: list[tuple[str, object]]) -> dict[str, Any]:
    """The settings of a run that has started, without those that no longer exist.

    dropped: takes their names and values, if these are not the accepted ones.
    """

    def drop(field: str, value: object) -> bool:
        if value != removed_settings()[field].accepted:
            dropped.append((field, value))
        return True

    return _without_removed(data, drop)


def _without_removed(
    data: Mapping[str, Any], is_dropped: Callable[[str, object], bool]
) -> dict[str, Any]:
    settings: Any = dict(data)
    for field in removed_settings():
        settings = _without(settings, field.split("."), partial(is_dropped, field))
    return dict(settings)


def _without(group: Any, path: list[str], is_dropped: Callable[[object], bool]) -> Any:
    """The group without the setting at `path` if its value is dropped. `group`: may be anything
    that a run file holds there.
    """
    if not isinstance(group, dict) or path[0] not in group:
        return group
    name, *rest = path
    inner = group[name]
    if not rest:
        is_ignored = is_dropped(inner)
        return {key: value for key, value in group.items() if key != name or not is_ignored}
    if isinstance(inner, list):
        return group | {name: [_without(item, rest, is_dropped) for item in inner]}
    return group | {name: _without(inner, rest, is_dropped)}
