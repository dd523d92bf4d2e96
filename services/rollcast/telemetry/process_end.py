"""The end of a program that has imported torch or the like: its memory goes back to the kernel as a
whole.
"""

import atexit
import ctypes
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process as `sys.exit(code)` does at the end of a program, but do not destroy its
    million objects.

    Python would destroy them one by one. With torch, transformers and vLLM that takes seconds, for
    which the user waits after Ctrl-C. Everything else is done in the interpreter's order: pools
    end, non-daemon threads are joined, `atexit` functions run, and output is flushed. Call it from
    the main thread.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # wakes the idle workers of pools, which a join waits for
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader may be gone
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what native code has printed
    finally:
        os._exit(code)
