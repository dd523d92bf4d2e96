"""An engine that does not start, or dies, in one sentence: what ran out of memory, or the deepest
error.

vLLM's front end learns only that its engine failed ("see stack trace above"), and nothing if it ran
out of memory. The process that failed, possibly a worker, knows the reason. So every process of the
engine writes it into the engine's folder.

    a process of the engine: an error is logged   -> its note in the folder: a shortage of memory,
                                                     or what caused it
    the generator:           the start fails      -> the shortage -> OutOfMemory,
                                                     else the cause -> UserError
                             the engine has ended -> the shortage -> OutOfMemory,
                                                     else the cause, or its signal
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollcast.config import engine_arguments as passed
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.out_of_memory import (
    KilledForMemory,
    OutOfMemory,
    is_out_of_memory,
    out_of_memory,
)
from rollcast.config.services import Generator
from rollcast.generator.vllm.engine_start import has_gpus, passed_arguments
from rollcast.generator.vllm.engine_warden import FOLDER_VARIABLE
from rollcast.telemetry.failure_reason import deepest_error, points_elsewhere
from rollcast.telemetry.gpus import expected_gpus, unusable
from rollcast.telemetry.host_memory import how_it_ended, kills
from rollcast.weights.receiver.reception import EngineStuckError

NO_ROOM = "no-room"
"""File of the folder: text of the error of a process that ran out of memory."""
CAUSE = "failure"
"""File of the folder: the error that caused the last one that was logged."""
NO_KV_CACHE = ("No available memory for the cache blocks", "larger than the available KV cache")
"""vLLM's messages if a single rollout does not fit into the KV cache."""
LARGE_KV_CACHE = ("less than requested memory for kv",)
"""vLLM's message if generator.cpu_kv_cache_gib exceeds the free memory."""
TAKEN_BY_OTHERS = (
    "less than desired GPU memory utilization",
    "less than desired CPU memory utilization",
)
"""vLLM's messages if other processes use the device."""
NO_GPU = (
    "driver on your system is too old",
    "driver version is insufficient",
    "driver initialization failed",
    "No CUDA GPUs are available",
    "no CUDA-capable device",
    "Failed to infer device type",
    "uncorrectable ECC error",
    "devices are busy or unavailable",
    "CUDA unknown error",
    "system not yet initialized",
    "Unexpected error from cudaGetDeviceCount",
    "GPU is lost",
)
"""Messages of CUDA, torch and vLLM if the GPU cannot be used at all."""
TOO_FEW_GPUS = ("larger than the number of available GPUs", "invalid device ordinal")
"""Messages if a GPU is missing; with too large a generator.tensor_parallel they come too."""
SHORTAGES = (*NO_KV_CACHE, *LARGE_KV_CACHE, *TAKEN_BY_OTHERS)


class _NoteHandler(logging.Handler):
    """Writes notes of the last logged error: each process of an engine has one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.note(error)

    def note(self, error: BaseException) -> None:
        if is_out_of_memory(error) or any(text in str(error) for text in SHORTAGES):
            self._write(NO_ROOM, str(error))
        cause = deepest_error(error)
        # Another process has written the reason down.
        if not points_elsewhere(cause):
            self._write(CAUSE, cause)

    def _write(self, name: str, text: str) -> None:
        with suppress(OSError):  # the folder is removed with its generator
            # Characters of a note: the message is at the start of a traceback without frames
            (self._folder / name).write_text(text[:2_000])


def take_notes() -> None:
    """Called in every process of an engine, possibly several times."""
    folder = os.environ.get(FOLDER_VARIABLE)
    # Every module of vLLM logs below this name, in whichever process it fails.
    logger = logging.getLogger("vllm")
    if folder is not None and not any(
        isinstance(handler, _NoteHandler) for handler in logger.handlers
    ):
        logger.addHandler(_NoteHandler(Path(folder)))


@contextmanager
def noted_failure() -> Iterator[None]:
    """Note an error of the context, a process of an engine, that vLLM has not logged: a missing
    module, for one.
    """
    try:
        yield
    except Exception as error:
        folder = Path(os.environ[FOLDER_VARIABLE])
        if read_note(folder, CAUSE) is None:
            _NoteHandler(folder).note(error)
        raise


def ended_engine(folder: Path, exit_code: int | None) -> str | None:
    """Why an engine that was at work has ended; None = not known.

    `exit_code` of its process, negative = a signal.
    """
    if exit_code is not None and exit_code < 0:
        return f"the engine's process was {how_it_ended(exit_code, kills())}"
    if (cause := read_note(folder, CAUSE)) is not None:
        return f"the engine ended: {cause}"
    return None if exit_code is None else f"the engine's process {how_it_ended(exit_code, kills())}"


@contextmanager
def explained_start(model: Model, generator: Generator, folder: Path) -> Iterator[None]:
    """Raise UserError if the context, the start of an engine, fails; OutOfMemory if it ran out of
    memory.
    """
    killed = kills()
    try:
        yield
    except (
        Exception
    ) as error:  # a broken tokenizer.json raises a bare Exception, other files other errors
        explained = error
        # A timeout may pass: an engine takes long on a busy machine.
        if not isinstance(error, UserError | TimeoutError):
            explained = _does_not_start(model, generator, error, read_note(folder, CAUSE))
        # A process that the kernel kills logs nothing.
        if kills() > killed:
            raise _kernel_kill_error() from error
        shortage = read_note(folder, NO_ROOM)
        if shortage is None and is_out_of_memory(explained):
            shortage = str(explained)
        if shortage is not None:
            raise _no_room_at_start(model, generator, shortage) from error
        cause = read_note(folder, CAUSE) or str(error)
        lost = NO_GPU if expected_gpus() < generator.tensor_parallel else (*NO_GPU, *TOO_FEW_GPUS)
        if expected_gpus() and any(text in cause for text in lost):
            raise unusable(built_for_cuda(), cause) from error
        if explained is error:
            raise
        raise explained from error


def no_room_at_work(
    generator: Generator, error: BaseException | None, shortage_note: str | None, *, killed: bool
) -> OutOfMemory | None:
    """The sentence for an engine that was at work; None = it did not run out of memory.

    `error`: the error of the generator's part that ended. `shortage_note`: the engine's
    note NO_ROOM. `killed`: whether the kernel has killed a process for lack of memory.
    """
    if killed:
        return _kernel_kill_error()
    if shortage_note is None and error is not None and is_out_of_memory(error):
        shortage_note = str(error)
    if shortage_note is None:
        return None
    memory_use = (
        "a version that is applied"
        if isinstance(error, EngineStuckError)
        else "a step of the engine"
    )
    if not has_gpus():
        return out_of_memory(
            memory_use, f"give the machine more, or lower {_cpu_cache(generator)}", shortage_note
        )
    remedy = (
        f"lower generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g}), which "
        "leaves more next to weights and KV cache"
    )
    return out_of_memory(memory_use, remedy, shortage_note)


def _does_not_start(
    model: Model, generator: Generator, error: Exception, cause: str | None
) -> UserError:
    # Only settings that the run file sets are blamed.
    argument_names = ", ".join(passed_arguments(generator.engine))
    served = f"model.path = {model.path}" + (
        f" with {passed.FIELD} ({argument_names})" if argument_names else ""
    )
    if cause is None:
        remedy = "give the folder of a Hugging Face causal LM"
    elif cause.startswith(("ModuleNotFoundError", "ImportError")):
        remedy = "install what is missing, or the pinned packages again (requirements/)"
    else:
        remedy = "choose a model that the installed vLLM serves on this machine"
    if argument_names:
        remedy += f", or leave {passed.FIELD} out"
    return UserError(f"{served}: vLLM cannot serve it ({cause or deepest_error(error)}); {remedy}")


def _no_room_at_start(model: Model, generator: Generator, shortage_note: str) -> OutOfMemory:
    engine = f"vLLM's engine for model.path = {model.path}"
    share = f"generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g})"
    workers = f"generator.tensor_parallel (now {generator.tensor_parallel})"
    if has_gpus():
        free_memory_remedy = f"end other processes on the GPU, or lower {share}"
        kv_cache_remedy = f"raise {share} or {workers}"
        memory_remedy = f"raise {workers}, or lower {share}"
    else:
        free_memory_remedy = "end other processes that use the machine's memory"
        kv_cache_remedy = f"raise {_cpu_cache(generator)}"
        memory_remedy = f"give the machine more, or lower {_cpu_cache(generator)}"
    if any(text in shortage_note for text in TAKEN_BY_OTHERS):
        return OutOfMemory(
            f"out of memory: {engine} finds less free memory than it should take; "
            f"{free_memory_remedy}"
        )
    if any(text in shortage_note for text in NO_KV_CACHE):
        return OutOfMemory(
            f"out of memory: {engine} has no room for the KV cache of one rollout of "
            f"model.max_length {model.max_length}; {kv_cache_remedy}, or shorten model.max_length"
        )
    return out_of_memory(engine, memory_remedy, shortage_note)


def built_for_cuda() -> str | None:
    """Version of CUDA, or of ROCm, that torch was built for. vLLM has imported torch already."""
    import torch

    return torch.version.cuda or torch.version.hip


def _kernel_kill_error() -> KilledForMemory:
    return KilledForMemory(
        "the kernel ran out of host memory and ended the engine; give the machine or pod more, or "
        "keep less there (weights.stage, generator.cpu_kv_cache_gib)"
    )


def _cpu_cache(generator: Generator) -> str:
    return f"generator.cpu_kv_cache_gib (now {generator.cpu_kv_cache_gib})"


def read_note(folder: Path, name: str) -> str | None:
    """The text of a note, NO_ROOM or CAUSE; None = no process wrote it, as far as is known."""
    try:
        return (folder / name).read_text()
    except OSError:
        return None
