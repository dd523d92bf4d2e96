"""An engine that ran out of memory, in one sentence with the setting.

vLLM's front end learns that an engine did not start, or died, but not why: only the failed process logs it. So every
process of the engine writes it into the engine's folder as well.

    a process of the engine: logs an error        -> was it out of memory?      -> write its text into the folder
    the generator:           the engine has ended -> does that text exist?      -> OutOfMemory
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.config.model import Model
from rollcast.config.out_of_memory import KilledForMemory, OutOfMemory, is_out_of_memory, out_of_memory
from rollcast.config.services import Generator
from rollcast.generator.vllm import engine_notes
from rollcast.generator.vllm.engine_start import has_gpus
from rollcast.telemetry.host_memory import kills
from rollcast.weights.receiver.reception import EngineStuckError

FILE = "no-room"
NO_KV_CACHE = ("No available memory for the cache blocks", "larger than the available KV cache")
"""vLLM's messages if a single rollout does not fit into the KV cache."""
LARGE_KV_CACHE = ("less than requested memory for kv",)
"""vLLM's message if generator.cpu_kv_cache_gib exceeds the free memory."""
TAKEN_BY_OTHERS = ("less than desired GPU memory utilization", "less than desired CPU memory utilization")
"""vLLM's messages if other processes use the device."""
SHORTAGES = (*NO_KV_CACHE, *LARGE_KV_CACHE, *TAKEN_BY_OTHERS)


def take_notes() -> None:
    """Called in every process of an engine, possibly several times."""
    engine_notes.take_notes(FILE, lambda error: str(error) if _is_no_room(error) else None)


def noted(folder: Path) -> str | None:
    """The text that a process of the engine has written; None = it did not run out of memory, as far as is known."""
    return engine_notes.read_note(folder, FILE)


@contextmanager
def explained_shortage(model: Model, generator: Generator, folder: Path) -> Iterator[None]:
    """Raise OutOfMemory if the context, the start of an engine, runs out of memory."""
    killed = kills()
    try:
        yield
    except Exception as error:
        if kills() > killed:
            raise by_kernel() from error
        reported = noted(folder)
        if reported is None:
            if not is_out_of_memory(error):
                raise
            reported = str(error)
        raise at_start(model, generator, reported) from error


def at_start(model: Model, generator: Generator, said: str) -> OutOfMemory:
    engine = f"vLLM's engine for model.path = {model.path}"
    share = f"generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g})"
    workers = f"generator.tensor_parallel (now {generator.tensor_parallel})"
    if any(text in said for text in TAKEN_BY_OTHERS):
        return OutOfMemory(
            f"out of memory: {engine} finds less free memory than it should take; "
            + (
                f"end other processes on the GPU, or lower {share}"
                if has_gpus()
                else "end other processes that use the machine's memory"
            )
        )
    if any(text in said for text in NO_KV_CACHE):
        more = f"raise {share} or {workers}" if has_gpus() else f"raise {_cpu_cache(generator)}"
        return OutOfMemory(
            f"out of memory: {engine} has no room for the KV cache of one rollout of model.max_length "
            f"{model.max_length}; {more}, or shorten model.max_length"
        )
    less = (
        f"raise {workers}, or lower {share}"
        if has_gpus()
        else f"give the machine more, or lower {_cpu_cache(generator)}"
    )
    return out_of_memory(engine, less, said)


def at_work(generator: Generator, error: BaseException | None, said: str | None, *, killed: bool) -> OutOfMemory | None:
    """The sentence for an engine that was at work; None = it did not run out of memory.

    `error`: the error of the generator's part that ended. `said`: the text of the engine (`noted`). `killed`: whether
    the kernel has killed a process for lack of memory.
    """
    if killed:
        return by_kernel()
    if said is None and error is not None and is_out_of_memory(error):
        said = str(error)
    if said is None:
        return None
    what = "a version that is applied" if isinstance(error, EngineStuckError) else "a step of the engine"
    if not has_gpus():
        return out_of_memory(what, f"give the machine more, or lower {_cpu_cache(generator)}", said)
    remedy = (
        f"lower generator.gpu_memory_utilization (now {generator.gpu_memory_utilization:g}), which leaves more next to "
        "weights and KV cache"
    )
    return out_of_memory(what, remedy, said)


def by_kernel() -> KilledForMemory:
    return KilledForMemory(
        "the kernel ran out of host memory and ended the engine; give the machine or pod more, or keep less there "
        "(weights.stage, generator.cpu_kv_cache_gib)"
    )


def _cpu_cache(generator: Generator) -> str:
    return f"generator.cpu_kv_cache_gib (now {generator.cpu_kv_cache_gib})"


def _is_no_room(error: BaseException) -> bool:
    return is_out_of_memory(error) or any(text in str(error) for text in SHORTAGES)
