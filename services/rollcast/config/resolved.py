"""Settings as a file contains them: the resolved run file, and where two run files differ.

The processes of a started run read the resolved one. Hand-written files are YAML, it is JSON.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rollcast.config.access_modes import FOLDER_MODE
from rollcast.config.base import Settings
from rollcast.config.schema import RunConfig
from rollcast.config.sentences import format_value

USUAL_PORTS = (("forecaster", "http_port"), ("local", "prometheus_port"))
"""Settings that stay left out if the run file leaves them out: a resumed run finds a free port if
another run has them."""


def write_resolved(config: RunConfig, path: Path) -> None:
    """Write the configuration with secrets in clear, readable by the owner only."""
    settings = plain(config)
    for group, name in USUAL_PORTS:
        if name not in getattr(config, group).model_fields_set:
            del settings[group][name]
    path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(settings, indent=1) + "\n")
    temporary.replace(path)


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as a file contains them: lists for tuples, text for paths, secrets in clear."""
    return dict(json.loads(json.dumps(settings.model_dump(), default=_text)))


def _text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting: its dotted name, and what either file gives it."""

    field: str
    old_value: Any
    new_value: Any

    @property
    def sentence(self) -> str:
        """Without the values of a secret."""
        old_text, new_text = (
            _in_words(self.field, value) for value in (self.old_value, self.new_value)
        )
        return (
            f"{self.field} {old_text} -> {new_text}"
            if old_text != "(not shown)"
            else f"{self.field} (not shown)"
        )


def _in_words(field: str, value: object) -> str:
    if isinstance(value, dict):
        items = [f"{name} {_in_words(f'{field}.{name}', item)}" for name, item in value.items()]
        return f"{{{', '.join(items)}}}"
    return format_value(field, value).removeprefix(" = ").strip()


def differences(old_settings: Settings, new_settings: Settings) -> list[Difference]:
    """The differences in the order of the schema. A group of another kind differs as a whole."""
    return list(_iterate_differences(plain(old_settings), plain(new_settings), ""))


def _iterate_differences(
    old_settings: Mapping[str, Any], new_settings: Mapping[str, Any], prefix: str
) -> Iterator[Difference]:
    for name in dict.fromkeys((*old_settings, *new_settings)):
        old_value = old_settings.get(name)
        new_value = new_settings.get(name)
        if isinstance(old_value, dict) and isinstance(new_value, dict):
            if old_value.get("kind") == new_value.get("kind"):
                yield from _iterate_differences(old_value, new_value, f"{prefix}{name}.")
            else:
                yield Difference(
                    f"{prefix}{name}.kind", old_value.get("kind"), new_value.get("kind")
                )
        elif old_value != new_value:
            yield Difference(f"{prefix}{name}", old_value, new_value)
