"""Where two run files differ, setting by setting."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.config.base import Settings
from rollcast.config.resolved import plain
from rollcast.config.sentences import shown


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting: its dotted name, and what either file gives it."""

    field: str
    before: Any
    after: Any

    @property
    def sentence(self) -> str:
        """Without the values of a secret."""
        before, after = (shown(self.field, value).removeprefix(" = ").strip() for value in (self.before, self.after))
        return f"{self.field} {before} -> {after}" if before != "(not shown)" else f"{self.field} (not shown)"


def differences(before: Settings, after: Settings) -> list[Difference]:
    """The differences in the order of the schema. A group of another kind differs as a whole."""
    return list(_between(plain(before), plain(after), ""))


def _between(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Iterator[Difference]:
    for name in dict.fromkeys((*before, *after)):
        old = before.get(name)
        new = after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            if old.get("kind") == new.get("kind"):
                yield from _between(old, new, f"{prefix}{name}.")
            else:
                yield Difference(f"{prefix}{name}.kind", old.get("kind"), new.get("kind"))
        elif old != new:
            yield Difference(f"{prefix}{name}", old, new)
