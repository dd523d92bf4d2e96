"""An engine that does not start, in one sentence: the model, the engine's settings that are set, the deepest error.

vLLM's front end learns only that its engine failed ("see stack trace above"). The process that failed, possibly a
worker, knows the reason. So every process of the engine writes its error into the engine's folder.

    a process of the engine: an error is logged -> the error that caused it in the folder
    the generator:           the start fails    -> that error, else its own -> UserError
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.config import engine_arguments as passed
from rollcast.config.engine_arguments import EngineArguments
from rollcast.config.errors import UserError
from rollcast.generator.vllm import engine_notes
from rollcast.generator.vllm.engine_start import passed_arguments
from rollcast.telemetry.failure_reason import deepest_error, points_elsewhere

FILE = "failure"


def take_notes() -> None:
    """Called in every process of an engine, possibly several times."""
    engine_notes.take_notes(FILE, _note)


def _note(error: BaseException) -> str | None:
    reason = deepest_error(error)
    return None if points_elsewhere(reason) else reason


@contextmanager
def explained_failure(model: str, settings: EngineArguments, folder: Path) -> Iterator[None]:
    """Raise UserError if the context, a part of an engine's start, fails."""
    try:
        yield
    except (UserError, TimeoutError):  # a timeout may pass: an engine takes long on a busy machine
        raise
    except Exception as error:  # a broken tokenizer.json raises a bare Exception, other files other errors
        raise _sentence(model, settings, error, engine_notes.read_note(folder, FILE)) from error


def _sentence(path: str, settings: EngineArguments, error: Exception, noted: str | None) -> UserError:
    """Only settings that the run file sets are blamed."""
    given = ", ".join(passed_arguments(settings))
    model = f"model.path = {path}" + (f" with {passed.FIELD} ({given})" if given else "")
    if noted is None:
        remedy = "give the folder of a Hugging Face causal LM"
    else:
        remedy = "choose a model that the installed vLLM serves on this machine"
    if given:
        remedy += f", or leave {passed.FIELD} out"
    return UserError(f"{model}: vLLM cannot serve it ({noted or deepest_error(error)}); {remedy}")
