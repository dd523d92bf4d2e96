"""An engine that ended for want of memory, told in one sentence with the setting.

vLLM tells the front end that an engine did not start, or has died, and not of what: that stands in the log of the one
process that failed. So every process of the engine leaves it in the engine's folder as well.

    a process of the engine: an error is logged -> no memory was the reason? -> its text in the folder
    the generator:           the engine is gone -> is there such a text?     -> OutOfMemory
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollcast.config.out_of_memory import KilledForMemory, OutOfMemory, is_out_of_memory, out_of_memory
from rollcast.config.run import RunConfig
from rollcast.generator.vllm import engine_warden
from rollcast.generator.vllm.engine_start import has_gpus
from rollcast.telemetry.host_memory import kills
from rollcast.weights.receiver.member import EngineStuckError

FILE = "no-room"
NO_KV_CACHE = ("No available memory for the cache blocks", "larger than the available KV cache")
"""What vLLM says where it leaves no room for a single rollout."""
LARGE_KV_CACHE = ("less than requested memory for kv",)
"""What it says where generator.cpu_kv_cache_gib is more than is free."""
TAKEN_BY_OTHERS = ("less than desired GPU memory utilization", "less than desired CPU memory utilization")
"""What it says where the device is not free."""
WANTS = (*NO_KV_CACHE, *LARGE_KV_CACHE, *TAKEN_BY_OTHERS)
MAX_CHARACTERS = 2_000


class _NoteOfNoRoom(logging.Handler):
    """Writes down the last error of this process that was for want of memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self._file = folder / FILE

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and _is_no_room(error):
            with suppress(OSError):  # the folder goes with its generator
                self._file.write_text(str(error)[:MAX_CHARACTERS])


def take_notes() -> None:
    """In a process of an engine; any number of times."""
    folder, logger = os.environ.get(engine_warden.FOLDER_VARIABLE), logging.getLogger("vllm")
    if folder and not any(isinstance(handler, _NoteOfNoRoom) for handler in logger.handlers):
        logger.addHandler(_NoteOfNoRoom(Path(folder)))


def noted(folder: Path) -> str | None:
    """What a process of the engine has left; None = it did not end for want of memory, as far as one knows."""
    try:
        return (folder / FILE).read_text()
    except OSError:
        return None


@contextmanager
def told_of_no_room(config: RunConfig, folder: Path) -> Iterator[None]:
    """Raise OutOfMemory where what is within, the start of an engine, fails for want of memory."""
    killed = kills()
    try:
        yield
    except Exception as error:
        if kills() > killed:
            raise by_kernel() from error
        if (said := noted(folder)) is None:
            if not is_out_of_memory(error):
                raise
            said = str(error)
        raise at_start(config, said) from error


def at_start(config: RunConfig, said: str) -> OutOfMemory:
    generator = config.generator
    engine = f"vLLM's engine for model.path = {config.model.path}"
    share = f"generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g})"
    workers = f"generator.tensor_parallel (now {generator.tensor_parallel})"
    if any(text in said for text in TAKEN_BY_OTHERS):
        return OutOfMemory(
            f"out of memory: {engine} finds less free than it is to take; "
            + (
                f"end what else uses the GPU, or lower {share}"
                if has_gpus()
                else "end what else uses the machine's memory"
            )
        )
    if any(text in said for text in NO_KV_CACHE):
        more = f"raise {share} or {workers}" if has_gpus() else f"raise {_cpu_cache(config)}"
        return OutOfMemory(
            f"out of memory: {engine} has no room for the KV cache of one rollout of model.max_length "
            f"{config.model.max_length}; {more}, or shorten model.max_length"
        )
    less = (
        f"raise {workers}, or lower {share}" if has_gpus() else f"give the machine more, or lower {_cpu_cache(config)}"
    )
    return out_of_memory(engine, less, said)


def at_work(config: RunConfig, error: BaseException | None, said: str | None, *, killed: bool) -> OutOfMemory | None:
    """Of an engine that was at work; None = it did not end for want of memory.

    `error`: what a generator's part ended with. `said`: what the engine left (`noted`). `killed`: the kernel, somebody.
    """
    if killed:
        return by_kernel()
    if said is None and error is not None and is_out_of_memory(error):
        said = str(error)
    if said is None:
        return None
    what = "a version that is applied" if isinstance(error, EngineStuckError) else "a step of the engine"
    generator = config.generator
    if not has_gpus():
        return out_of_memory(what, f"give the machine more, or lower {_cpu_cache(config)}", said)
    remedy = (
        f"lower generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g}), which leaves more beside "
        "weights and KV cache"
    )
    return out_of_memory(what, remedy, said)


def by_kernel() -> KilledForMemory:
    return KilledForMemory(
        "the kernel ran out of host memory and ended the engine; give the machine or pod more, or keep less there "
        "(weights.stage, generator.cpu_kv_cache_gib)"
    )


def _cpu_cache(config: RunConfig) -> str:
    return f"generator.cpu_kv_cache_gib (now {config.generator.cpu_kv_cache_gib})"


def _is_no_room(error: BaseException) -> bool:
    return is_out_of_memory(error) or any(text in str(error) for text in WANTS)
