"""Notes of the engine's processes: text of their errors, in files of the engine's folder, for the front end."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rollcast.generator.vllm import engine_warden

MAX_NOTE_CHARACTERS = 2_000


class _NoteHandler(logging.Handler):
    """Writes the note of the last logged error that has one."""

    def __init__(self, file: Path, note: Callable[[BaseException], str | None]) -> None:
        super().__init__(logging.ERROR)
        self._file = file
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or (text := self._note(error)) is None:
            return
        with suppress(OSError):  # the folder is removed with its generator
            self._file.write_text(text[:MAX_NOTE_CHARACTERS])


def take_notes(name: str, note: Callable[[BaseException], str | None]) -> None:
    """Write the notes of this process into the file `name`. `note`: the text for an error; None = no note.

    Called in every process of an engine, possibly several times.
    """
    folder = os.environ.get(engine_warden.FOLDER_VARIABLE)
    logger = logging.getLogger("vllm")
    if folder is None or any(handler.name == name for handler in logger.handlers):
        return
    handler = _NoteHandler(Path(folder) / name, note)
    handler.name = name
    logger.addHandler(handler)


def read_note(folder: Path, name: str) -> str | None:
    """The note in an engine's folder; None = there is no note."""
    try:
        return (folder / name).read_text()
    except OSError:
        return None
