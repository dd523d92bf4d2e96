"""Large imports without garbage collection: of torch, transformers and vLLM a million objects are made, and all stay.

Looking through them again and again is a tenth of the import's time, and a third of all that an engine's start takes.
In a forecaster, which reads thousands of series at once, it is up to a tenth of the time of a look.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection in this process until the block ends; then as it was, but for what there is by then.

    That is never looked through again: nothing of it is collected.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            collect_from_now()


def collect_from_now() -> None:
    """Collect garbage, of what is made from here on; all of it only where the interpreter ends as usual."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries that count their objects at the end would call the frozen ones leaks
    gc.enable()
