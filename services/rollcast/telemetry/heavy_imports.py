"""Large imports without garbage collection: torch, transformers and vLLM create a million objects,
and all stay.

Collections among them take a tenth of the import's time, and a third of an engine's start. In a
forecaster, which reads thousands of series together, they take up to a tenth of a reading.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """No garbage collection in this process until the block ends.

    Objects that exist then are never examined again, so none of them is collected.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            collect_from_now()


def collect_from_now() -> None:
    """Collect only objects created from now on, and all of them at a normal end
    of the interpreter.
    """
    gc.freeze()
    atexit.register(
        gc.unfreeze
    )  # libraries that count their objects at the end would call the frozen ones leaks
    gc.enable()
