"""Settings that Rollcast no longer has, as run files of earlier versions name them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RemovedSetting:
    ignored: object
    """The value with the meaning of today: resolved run files of earlier versions contain it, so it is accepted."""
    reason: str
    """What follows the setting and any other value in the sentence."""


REMOVED = {
    "weights.encoding": RemovedSetting(
        "full",
        "is not a setting any more: every version is sent whole, which was faster wherever it was measured; remove it",
    ),
    "forecaster.grpc_port": RemovedSetting(
        0,
        "is not a setting any more: the forecaster has no gRPC API, and its HTTP API answers the same "
        "(docs/reference/http.md); remove it",
    ),
}
"""By dotted name: group and setting."""


def without_ignored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without removed ones that have no effect."""
    settings = dict(data)
    for name, removed in REMOVED.items():
        group, _, setting = name.partition(".")
        given = settings.get(group)
        if isinstance(given, dict) and setting in given and given[setting] == removed.ignored:
            settings[group] = {key: value for key, value in given.items() if key != setting}
    return settings
