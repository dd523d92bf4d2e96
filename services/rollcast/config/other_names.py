"""Names of settings that users bring from other systems, and what each is here: `other_names.yaml`.

docs/reference/other-names.md is made of that table, too. Settings that Rollcast no longer has are
in `REMOVED`, as run files of earlier versions name them.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

TABLE = Path(__file__).with_suffix(".yaml")
ALL = "all"
"""The word of the table for every name of an entry."""
MAX_DEPTH = 8
"""Levels of such a group; those of the other systems have five."""
REMOVED = {
    "weights.encoding": "is not a setting any more: every version is sent whole, which was faster "
    "wherever "
    "it "
    "was "
    "measured; remove it",
    "forecaster.grpc_port": "is not a setting any more: the forecaster has no gRPC API, and its HTTP "  # noqa: E501
    "API "
    "answers "
    "the "
    "same (docs/reference/http.md); remove it",
    "weights.overlap_training": "is not a setting any more: a broadcast and an update on the same GPUs never "  # noqa: E501
    "run "
    "at "
    "the "
    "same time; remove it",
}
"""By dotted name (group and setting) what follows it in the sentence."""
ACCEPTED = {
    "weights.encoding": "full",
    "forecaster.grpc_port": 0,
    "weights.overlap_training": False,
}
"""The values with the meaning of today: resolved run files of earlier versions contain them."""


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


def without_ignored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without removed ones that have no effect."""
    settings = dict(data)
    for name, accepted in ACCEPTED.items():
        group, _, setting = name.partition(".")
        group_settings = settings.get(group)
        if (
            isinstance(group_settings, dict)
            and setting in group_settings
            and group_settings[setting] == accepted
        ):
            settings[group] = {
                key: value for key, value in group_settings.items() if key != setting
            }
    return settings
