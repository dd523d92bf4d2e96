"""Functions of one's own, as verifiers and as parts of a recipe: found by file or by import path,
and their failures are reported with file and line.

./reward.py:grade        the function `grade` of a file; modules next to the file can be imported
my_package.rewards:grade of a module that is installed, or is in the folder in which the command was
started
"""

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType, TracebackType
from typing import Any

from rollcast.config.errors import UserError, causes

PARTS_GROUP = "rollcast.parts"
"""Group of the entry points by which installed packages name parts of a recipe."""
MAX_SENTENCE_CHARACTERS = 400
"""Characters of a failure that travel on."""
SANDBOX_HINT = (
    "; in the sandbox a verifier has no files, network, processes or threads: read files while "
    "the module is imported, or declare the function in tasks.verifiers with trusted: true"
)
_PACKAGE = Path(__file__).parents[1]


def is_function(name: str) -> bool:
    """Whether a verifier's name is the place of a function."""
    return ":" in name


def source_file(source: str) -> Path | None:
    """The file that a function is in; None if `source` names a module or an entry point."""
    module_path = source.rpartition(":")[0]
    return Path(module_path).expanduser() if module_path.endswith(".py") else None


def absolute(source: str) -> str:
    """The name of the same function for a process that works in another folder."""
    file = source_file(source)
    return source if file is None else f"{file.absolute()}:{source.rpartition(':')[2]}"


def check_file(source: str, setting: str = "verifier") -> None:
    """Raises UserError if the file that a function is in is not there.

    `setting`: what names the function.
    """
    file = source_file(source)
    if file is not None and not file.is_file():
        raise UserError(
            f"{setting} {source}: there is no file {file.absolute()}; "
            "correct the path, which is relative to the folder in which the command is started"
        )


@functools.cache
def load_function(source: str, group: str = PARTS_GROUP) -> Callable[..., Any]:
    """The function, or class, that `source` names; without a colon an entry point of an installed
    package in `group`.

    Raises UserError if there is no such function, and whatever its import raises.
    """
    if not is_function(source):
        return _installed_part(source, group)
    check_file(source)
    module_path, _, name = source.rpartition(":")
    file = source_file(source)
    module = importlib.import_module(module_path) if file is None else _load_module(file.absolute())
    function = getattr(module, name, None)
    if not callable(function):
        function_names = [
            key for key, value in vars(module).items() if _is_defined_in(value, module)
        ]
        has = (
            f"it has {', '.join(sorted(function_names)[:10])}"
            if function_names
            else "there are no functions in it"
        )
        raise UserError(f"{module_path} has no function {name!r} ({has}); name one, or add it")
    loaded_function: Callable[..., Any] = function
    return loaded_function


def _installed_part(name: str, group: str) -> Callable[..., Any]:
    installed = importlib.metadata.entry_points(group=group)
    if name not in installed.names:
        names = ", ".join(sorted(installed.names)) or "none"
        raise UserError(
            f"no installed package has the entry point {name!r} in the group {group} (there is: "
            f"{names}); install it, or name a function as ./mine.py:f"
        )
    function: Callable[..., Any] = installed[name].load()
    return function


def file_digest(source: str) -> str | None:
    """SHA-256 of the function's file, in hexadecimal digits.

    None: `source` names no file, or one that cannot be read.
    """
    file = source_file(source)
    if file is None or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def _load_module(file: Path) -> ModuleType:
    """The module of an absolute path: one, however many of its functions are asked for."""
    sys.path.append(
        str(file.parent)
    )  # behind everything else, so that no file hides a module of Python's
    digest = hashlib.sha256(os.fsencode(file)).hexdigest()
    # Hexadecimal digits of a path's digest in the name of its module: 64 bits, so that no two paths
    # share them.
    path_digits = 16
    # files of equal stem do not replace each other
    name = f"rollcast_own_{file.stem}_{digest[:path_digits]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pickle and dataclasses look it up
    spec.loader.exec_module(module)
    return module


def _is_defined_in(value: object, module: ModuleType) -> bool:
    return (
        callable(value)
        and getattr(value, "__module__", None) == module.__name__
        and not isinstance(value, type)
    )


def failure(
    error: BaseException,
    function: Callable[..., Any] | None = None,
    row: Any = None,
    *,
    signature: str = "",
    in_sandbox: bool = False,
) -> str:
    """The message of an exception and its place in the user's own code: one line.

    ZeroDivisionError: division by zero (/home/me/reward.py, line 7)

    function: that was called; None = none yet. row: its argument. signature: a hint for a call that
    raised TypeError before the function ran; empty = none.
    """
    if isinstance(error, UserError):
        return str(error)[:MAX_SENTENCE_CHARACTERS]
    if isinstance(error, SyntaxError) and error.filename:
        error_message = f"{type(error).__name__}: {error.msg}"
        location = f" ({error.filename}, line {error.lineno})"
    else:
        error_message = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        location = _place(error.__traceback__)
    hint = SANDBOX_HINT if in_sandbox and _asks_for_more(error) else ""
    if (
        isinstance(error, KeyError)
        and isinstance(row, dict)
        and error.args
        and error.args[0] not in row
    ):
        hint = f"; the row has {', '.join(map(repr, list(row)[:10]))}"
    if not location and function is not None:
        location = definition(function)
        hint = signature if signature and isinstance(error, TypeError) else hint
    return error_message[: MAX_SENTENCE_CHARACTERS // 2] + location + hint


def definition(function: Callable[..., Any] | None) -> str:
    """The place of a function, as `failure` writes it; empty if Python does not know."""
    code = getattr(None if function is None else inspect.unwrap(function), "__code__", None)
    return (
        f" ({code.co_filename}, line {code.co_firstlineno})" if isinstance(code, CodeType) else ""
    )


def _place(traceback: TracebackType | None) -> str:
    """The last line of the user's own code; of a library's if no code of the user was running."""
    locations = [(frame.f_code.co_filename, line) for frame, line in walk_tb(traceback)]
    frames = [
        location
        for location in locations
        if not location[0].startswith(("<", f"{_PACKAGE}{os.sep}"))
    ]
    libraries = tuple(
        os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")
    )
    user_frames = [
        frame for frame in frames if not os.path.realpath(frame[0]).startswith(libraries)
    ]
    for file, line in reversed(user_frames or frames):
        return f" ({file}, line {line})"
    return ""


def _asks_for_more(error: BaseException) -> bool:
    """Whether it may be the sandbox that said no, to the code itself or to a library below it."""
    return any(
        isinstance(link, OSError) or "can't start new thread" in str(link)
        for link in islice(causes(error), 20)
    )
