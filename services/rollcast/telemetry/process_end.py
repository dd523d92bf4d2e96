"""The end of a program that has imported torch or the like: its memory goes back to the kernel as a whole."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process as `sys.exit(code)` does at the end of a program, but leave its million objects alone.

    Python would take them apart one by one: of torch, transformers and vLLM that is seconds of processor time, which
    whoever typed Ctrl-C waits for. Everything else is done, in the interpreter's own order: pools are told to end and
    threads that are no daemons waited for, then what is registered with `atexit`, then all output is written. To be
    called by the main thread.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # wakes the idle workers of pools, which a join waits for
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody may read it any more
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # what native code has printed
    finally:
        os._exit(code)
