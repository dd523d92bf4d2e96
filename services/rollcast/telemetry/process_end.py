"""The end of a program that has imported torch: its memory goes back to the kernel as a whole."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process as `sys.exit(code)` does at the end of a program, but leave its million objects alone.

    Python would take them apart one by one: of torch, transformers and vLLM that is seconds of processor time, which
    whoever typed Ctrl-C waits for. Everything else is done: threads that are no daemons are waited for, then what is
    registered with `atexit`, then the output is written. To be called by the main thread.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # nobody may read it any more
        os._exit(code)
