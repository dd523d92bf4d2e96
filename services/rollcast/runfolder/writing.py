"""Writing to the run folder: what the disk refuses is told as one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError, refused_by_the_world


def make_folder(path: Path) -> None:
    """Make the folder and its parents where they are missing. Raises UserError where the disk refuses it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line. Raises UserError where the disk refuses it."""
    try:
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise _cannot_write(path, error) from error


def replace_json(path: Path, record: dict[str, Any]) -> None:
    """Write the whole file, or leave the old one as it is. Raises UserError where the disk refuses it."""
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(record) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UserError:
    return refused_by_the_world(
        error,
        f"folder: {path} cannot be written ({error.strerror}); free space or mend the permissions, then go on with "
        "--resume",
    )
