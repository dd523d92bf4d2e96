"""Writing to the run folder. An error of the disk becomes one sentence."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from rollcast.config.access_modes import FOLDER_MODE, open_for_group
from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.json_text import to_json


def make_folder(path: Path) -> None:
    """Make the folder and its parents if they are missing. Raises UserError if the disk refuses."""
    try:
        path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error


def append_line(path: Path, record: dict[str, Any], *, go_on: str = "--resume") -> None:
    """Append one JSON line, whole or not at all. Raises UserError if the disk refuses.

    A last line that a killed process left unfinished is ended first, so that only it is lost;
    readers count it.
    """
    line = json.dumps(record).encode() + b"\n"
    try:
        with open(path, "a+b", buffering=0, opener=open_for_group) as file:
            _append(file, line)
    except OSError as error:
        raise _cannot_write(path, error, go_on) from error


def _append(file: BinaryIO, line: bytes) -> None:
    size = file.seek(0, os.SEEK_END)
    if size > 0:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            line = b"\n" + line
    try:
        while line:
            line = line[os.write(file.fileno(), line) :]
    except OSError:
        with suppress(OSError):  # the next call ends what then remains
            file.truncate(size)
        raise


def replace_json(
    path: Path, record: dict[str, Any] | list[Any], *, go_on: str = "--resume"
) -> None:
    """Write the whole file, or leave the old one as it is. `go_on`: the option that continues the
    run or the set.

    Raises UserError if the disk refuses.
    """
    replace_text(path, to_json(record, indent=1) + "\n", go_on=go_on)


def replace_text(path: Path, text: str, *, go_on: str = "--resume") -> None:
    """Write a whole text file, or leave the old one as it is. Raises UserError too."""
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "w", opener=open_for_group) as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error, go_on) from error


def _cannot_write(path: Path, error: OSError, go_on: str = "--resume") -> UserError:
    return refused_by_the_world(
        error,
        f"folder: {path} cannot be written ({error.strerror}); free space or fix the permissions, "
        f"then go on with {go_on}",
    )
