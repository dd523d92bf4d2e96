"""Settings of earlier versions that are gone. A run file that has one is still read, without it.

If its value is not the earlier default, one line on standard error says what replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GoneSetting:
    """A setting that earlier versions had."""

    group: str
    name: str
    default: Any
    """The value in run folders of earlier versions whose user did not set it."""
    instead: str


GONE_SETTINGS = (
    GoneSetting(
        "forecaster",
        "grpc_port",
        0,
        "the forecaster has no gRPC API any more; its HTTP API answers the same: GET /api/runs/RUN/forecast and "
        "/predict, POST /api/fit",
    ),
)


def without_gone_settings(data: dict[str, Any], source: str) -> dict[str, Any]:
    """`data`, as a run file holds it, without the settings that are gone. `source`: the file, for the line about it."""
    for gone in GONE_SETTINGS:
        settings = data.get(gone.group)
        if not isinstance(settings, Mapping) or gone.name not in settings:
            continue
        value = settings[gone.name]
        kept = {name: item for name, item in settings.items() if name != gone.name}
        data = {**data, gone.group: kept}
        if value != gone.default:
            print(f"{source}: {gone.group}.{gone.name} = {value}: {gone.instead}; remove it", file=sys.stderr)
    return data
