"""The tool `python`: a program of the model's, run in the environment's own process.

Its rights are those that the profile of that process allows (docs/sandbox.md). It may also end or
spoil the process: the process that ran a program serves no other episode.
"""

import ast
import builtins
import contextlib
import io
import traceback
from typing import Any

from rollcast.environments.overdue import OverdueError

MAX_PRINTED_CHARACTERS = 100_000
"""The part of a program's output that is kept; the rest is counted. The answer to the model is cut
further."""
_FILE_NAME = "<program>"


def python(code: str) -> str:
    """Run a Python program. Each call begins without the variables of earlier calls.

    Args:
        code: The program. Its output is returned, and the value of its last line if that is an
            expression.

    Returns:
        The output, and the error if the program failed.
    """
    printed = _Printed()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            _run(code)
    except SystemExit as error:
        if error.code not in (None, 0):
            printed.write(f"the program ended with {error.code!r}\n")
    except OverdueError:
        raise
    except BaseException as error:
        printed.write(_describe_error(error))
    return printed.text or "(no output)"


def _run(code: str) -> None:
    """Run the program, and print the value of its last line as an interactive session would."""
    tree = ast.parse(code, _FILE_NAME)
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _FILE_NAME, "exec", dont_inherit=True), names)  # noqa: S102  # this is the tool
    if isinstance(last, ast.Expr):
        expression = compile(ast.Expression(last.value), _FILE_NAME, "eval", dont_inherit=True)
        value = eval(expression, names)  # noqa: S307  # this too
        if value is not None:
            print(repr(value))


def _describe_error(error: BaseException) -> str:
    """The exception and the lines of the program that led to it."""
    with contextlib.suppress(BaseException):  # its __str__ is the program's own
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"line {frame.lineno}" for frame in frames if frame.filename == _FILE_NAME]
        location = f" ({', called in '.join(reversed(lines[-3:]))})" if lines else ""
        error_text = "".join(traceback.format_exception_only(error)).strip()
        return f"{error_text}{location}\n"
    return f"{type(error).__name__}\n"


class _Printed(io.TextIOBase):
    """Text that was written, its beginning at most."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._num_kept = 0
        self._num_lost = 0

    def write(self, text: str, /) -> int:
        kept_text = text[: MAX_PRINTED_CHARACTERS - self._num_kept]
        self._parts.append(kept_text)
        self._num_kept += len(kept_text)
        self._num_lost += len(text) - len(kept_text)
        return len(text)

    def writable(self) -> bool:
        return True

    @property
    def text(self) -> str:
        lost = f"\n[{self._num_lost} further characters were not kept]" if self._num_lost else ""
        return "".join(self._parts).rstrip("\n") + lost
