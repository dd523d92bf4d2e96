"""controller.json of a checkpoint: the controller's state, and how the checkpoint's other files are to be read.

{"crc32": checksum of what follows, "format": 2, "updates": .., "world_size": .., "controller": ..}
"""

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.finite_json import finite_json

FORMAT = 2
"""Raised when an earlier release would misread a newer file."""
_CHECKSUM = re.compile(r'\{"crc32": (\d{1,10}), ')


@dataclass(frozen=True, slots=True)
class ControllerFile:
    """What rank 0 wants to find again."""

    updates: int
    """Optimizer steps made."""
    world_size: int
    """Ranks that wrote the checkpoint."""
    controller: dict[str, Any] | None


def controller_text(*, updates: int, world_size: int, controller: dict[str, Any] | None) -> str:
    """The file."""
    fields = {"format": FORMAT, "updates": updates, "world_size": world_size, "controller": controller}
    text = json.dumps(fields)
    return f'{{"crc32": {zlib.crc32(text.encode())}, {text[1:]}'


def read_controller(text: str) -> ControllerFile:
    """Raises ValueError if it is damaged, UserError if a newer Rollcast wrote it."""
    checksum = _CHECKSUM.match(text)
    if checksum is None:
        raise ValueError("controller.json has no checksum")
    covered = "{" + text[checksum.end() :]
    if zlib.crc32(covered.encode()) != int(checksum[1]):
        raise ValueError("controller.json is not as it was written")
    found = finite_json(covered)
    if not isinstance(found, dict):
        raise ValueError("controller.json holds no object")
    written_in = found.get("format")
    if _is_count(written_in, FORMAT + 1):
        raise UserError(f"it is of format {written_in}, this Rollcast knows {FORMAT} at most")
    if written_in != FORMAT:
        raise ValueError(f"controller.json is of format {written_in!r}")
    updates, world_size, controller = (found.get(name, "") for name in ("updates", "world_size", "controller"))
    if not _is_count(updates, 0) or not _is_count(world_size, 1) or not isinstance(controller, dict | None):
        raise ValueError("controller.json lacks updates, world_size or controller")
    return ControllerFile(updates, world_size, controller)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least
