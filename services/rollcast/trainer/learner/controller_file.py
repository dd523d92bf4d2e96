"""controller.json of a checkpoint: the controller's state, and how the checkpoint's other files are to be read.

    {"crc32": checksum of what follows, "format": 2, "updates": .., "world_size": .., "controller": ..}

Without `format` an earlier Rollcast wrote it: nothing covers the file itself, nor `.metadata`.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.finite_json import finite_json

CHECKED_FORMAT = 2
"""Since this format every file of a checkpoint has a checksum. Raise it if older releases would misread newer files."""
_CHECKSUM = re.compile(r'\{"crc32": (\d{1,10}), ')


@dataclass(frozen=True, slots=True)
class ControllerFile:
    """What rank 0 wants to find again."""

    updates: int
    """Optimizer steps made."""
    world_size: int
    """Ranks that wrote the checkpoint."""
    controller: dict[str, Any] | None
    is_checked: bool
    """Whether every file of the checkpoint has a checksum."""


def controller_text(*, updates: int, world_size: int, controller: dict[str, Any] | None) -> str:
    """The file."""
    fields = {"format": CHECKED_FORMAT, "updates": updates, "world_size": world_size, "controller": controller}
    text = json.dumps(fields)
    return f'{{"crc32": {zlib.crc32(text.encode())}, {text[1:]}'


def read_controller(text: str) -> ControllerFile:
    """Raises ValueError if it is damaged, UserError if a newer Rollcast wrote it."""
    checksum = _CHECKSUM.match(text)
    covered = "{" + text[checksum.end() :] if checksum is not None else text
    if checksum is not None and zlib.crc32(covered.encode()) != int(checksum[1]):
        raise ValueError("controller.json is not as it was written")
    found = finite_json(covered)
    if not isinstance(found, dict):
        raise ValueError("controller.json holds no object")
    written_in = found.get("format", 1)
    if checksum is not None and written_in not in (1, CHECKED_FORMAT):
        raise UserError(f"it is of format {written_in}, this Rollcast knows {CHECKED_FORMAT} at most")
    if "format" in found and checksum is None:
        raise ValueError("controller.json has no checksum")
    updates, world_size, controller = (found.get(name, "") for name in ("updates", "world_size", "controller"))
    if not _is_count(updates, 0) or not _is_count(world_size, 1) or not isinstance(controller, dict | None):
        raise ValueError("controller.json lacks updates, world_size or controller")
    return ControllerFile(updates, world_size, controller, is_checked=checksum is not None)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
