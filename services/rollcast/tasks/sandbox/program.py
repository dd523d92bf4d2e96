"""The inside of a program's process, locked down already: run what the model wrote, as a script or
call by call.

Nothing here is trusted by anyone: the code that runs here can change all of it.
"""

import builtins
import contextlib
import os
import sys
import threading
import types
from typing import Any, NoReturn

from rollcast.tasks.sandbox.channel import Channel


def run_program(channel: Channel) -> NoReturn:
    """Receive the sources and what to do with them; never returns."""
    sys.set_int_max_str_digits(0)
    _threads_run_at_once()
    job = channel.receive()
    if job["script"]:
        os.close(channel.descriptor)
        _run_script(job["sources"])
    _serve_calls(channel, job["sources"])


def _threads_run_at_once() -> None:
    """No thread can be started here. Programs that use one only for its deeper stack still work: it
    runs immediately."""

    def start(self: threading.Thread) -> None:
        with contextlib.suppress(SystemExit):
            self.run()

    threading.Thread.start = start  # type: ignore[method-assign]
    threading.Thread.join = lambda self, timeout=None: None  # type: ignore[method-assign]
    threading.Thread.is_alive = lambda self: False  # type: ignore[method-assign]


def _run_script(sources: list[str]) -> NoReturn:
    """Standard input and output are descriptors 0 and 1.

    Exit code 1 after an exception, as Python's own.
    """
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    code: Any = 0
    try:
        _execute(sources, "__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _serve_calls(channel: Channel, sources: list[str]) -> NoReturn:
    """Each call of a function of the program is answered with its value, or with its exception."""
    try:
        names = _execute(sources, "program")
        channel.send({"value": None})
    except BaseException as error:
        channel.send(_make_error_answer(error))
        os._exit(0)
    while True:
        try:
            call = channel.receive()
        except EOFError:
            os._exit(0)
        try:
            channel.send(
                {"value": _find(names, call["name"])(*call["arguments"], **call["keywords"])}
            )
        except BaseException as error:
            channel.send(_make_error_answer(error))


def _execute(sources: list[str], name: str) -> dict[str, Any]:
    """Run the sources one after the other in one module; returns its names."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    for source in sources:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module.__dict__


def _find(names: dict[str, Any], name: str) -> Any:
    """That method of a new `Solution`, before the function of that name: `from itertools import *`
    does not hide it.
    """
    solution = names.get("Solution")
    return (
        getattr(solution(), name)
        if solution is not None and hasattr(solution, name)
        else names[name]
    )


def _make_error_answer(error: BaseException) -> dict[str, Any]:
    try:
        # Characters of an exception's text that are passed to the judge
        message = str(error)[:200]
    except BaseException:
        message = ""
    return {"raised": type(error).__name__, "message": message}
