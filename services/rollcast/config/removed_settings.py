"""Settings that Rollcast no longer has, as run files of earlier versions name them."""

from collections.abc import Mapping
from typing import Any

REMOVED = {
    "weights.encoding": "is not a setting any more: every version is sent whole, which was faster wherever it was "
    "measured; remove it",
    "forecaster.grpc_port": "is not a setting any more: the forecaster has no gRPC API, and its HTTP API answers the "
    "same (docs/reference/http.md); remove it",
    "weights.overlap_training": "is not a setting any more: a broadcast and an update on the same GPUs never run at the "
    "same time; remove it",
}
"""By dotted name (group and setting) what follows it in the sentence."""
ACCEPTED = {"weights.encoding": "full", "forecaster.grpc_port": 0, "weights.overlap_training": False}
"""The values with the meaning of today: resolved run files of earlier versions contain them."""


def without_ignored(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without removed ones that have no effect."""
    settings = dict(data)
    for name, accepted in ACCEPTED.items():
        group, _, setting = name.partition(".")
        given = settings.get(group)
        if isinstance(given, dict) and setting in given and given[setting] == accepted:
            settings[group] = {key: value for key, value in given.items() if key != setting}
    return settings
