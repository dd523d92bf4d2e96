"""An engine that does not start, in one sentence: the model, the engine's settings that are set, the deepest error.

vLLM's front end is told only that its engine failed ("see stack trace above"). Why is known to the process that failed,
which may be a worker's. So every process of the engine leaves its error in the engine's folder.

    a process of the engine: an error is logged -> the error that caused it in the folder
    the generator:           the start fails    -> that error, else its own -> UserError
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollcast.config import engine_arguments as passed
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.generator.vllm import engine_warden
from rollcast.generator.vllm.engine_start import passed_arguments
from rollcast.telemetry.failure_reason import deepest_error, points_elsewhere

FILE = "failure"


class _NoteOfFailure(logging.Handler):
    """Writes down the last error of this process that names a reason."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self._file = folder / FILE

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or points_elsewhere(reason := deepest_error(error)):
            return
        with suppress(OSError):  # the folder goes with its generator
            self._file.write_text(reason)


def take_notes() -> None:
    """In a process of an engine; any number of times."""
    folder, logger = os.environ.get(engine_warden.FOLDER_VARIABLE), logging.getLogger("vllm")
    if folder and not any(isinstance(handler, _NoteOfFailure) for handler in logger.handlers):
        logger.addHandler(_NoteOfFailure(Path(folder)))


@contextmanager
def told_of_failure(config: RunConfig, folder: Path) -> Iterator[None]:
    """Raise UserError if what is within, a part of the start of an engine, fails."""
    try:
        yield
    except (UserError, TimeoutError):  # the second may pass: on a busy machine an engine takes long
        raise
    except Exception as error:  # a broken tokenizer.json is a bare Exception, other files are whatever they break
        raise _sentence(config, error, _noted(folder)) from error


def _noted(folder: Path) -> str | None:
    try:
        return (folder / FILE).read_text()
    except OSError:
        return None


def _sentence(config: RunConfig, error: Exception, noted: str | None) -> UserError:
    """Only settings that the run file sets are blamed."""
    given = ", ".join(passed_arguments(config.generator.engine))
    model = f"model.path = {config.model.path}" + (f" with {passed.FIELD} ({given})" if given else "")
    if noted is None:
        remedy = "give the folder of a Hugging Face causal LM"
    else:
        remedy = "choose a model that the installed vLLM serves on this machine"
    if given:
        remedy += f", or leave {passed.FIELD} out"
    return UserError(f"{model}: vLLM cannot serve it ({noted or deepest_error(error)}); {remedy}")
