"""Unit tests on a program that runs in another process.

The tests run here, the program there. What the tests compare is built here from plain values, so a program cannot
change `==`, `assert` or the verdict; and it never sees what is expected, so it cannot answer from that either.
"""

from __future__ import annotations

import builtins
import symtable
import sys
from collections.abc import Callable
from typing import Any

from rollcast.tasks.code_reference import CodeReference
from rollcast.tasks.sandbox.code_answer import last_program
from rollcast.tasks.sandbox.functions import Functions, RaisedError
from rollcast.tasks.sandbox.launcher import Launcher
from rollcast.tasks.sandbox.same_output import same_output
from rollcast.tasks.sandbox.verdict import ProgramError
from rollcast.tasks.verifiers import Grade

MAX_DIGITS = 100_000
"""Of a number that a program answers with; more would make comparing it the slow part."""
MAX_CASES = 512
"""Further ones are not run: so many tell."""


def grade_code(completion: str, reference: CodeReference, launcher: Launcher) -> Grade:
    """`ok` where the last program of the answer passes every test (`rollcast.tasks.code_reference`).

    Raises whatever an unusable reference makes go wrong before the program is run.
    """
    sys.set_int_max_str_digits(MAX_DIGITS)
    passes = _KINDS[reference["kind"]](reference)
    program = last_program(completion)
    if program is None:
        return Grade(0.0, "wrong")
    try:
        passed = passes(program, launcher)
    except ProgramError as failure:
        return Grade(0.0, "wrong", failure.reason)
    except RaisedError as raised:
        return Grade(0.0, "wrong", "memory" if raised.kind == "MemoryError" else "")
    except OSError:
        raise
    except Exception:  # the reference was read before; only what the program answered can be to blame
        return Grade(0.0, "wrong", "garbled")
    return Grade(float(passed), "ok" if passed else "wrong")


Passes = Callable[[str, Launcher], bool]


def _tests(reference: CodeReference) -> Passes:
    """The preamble runs on both sides: its helpers are the tests' own, whatever the program makes of them. The entry
    point, and every name that neither the tests nor the preamble define, is the program's."""
    source, preamble = reference["tests"], reference.get("preamble", "")
    tests = compile(source, "<tests>", "exec", dont_inherit=True)
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(preamble, "<preamble>", "exec", dont_inherit=True), names)  # noqa: S102
    programs = _undefined(source) - names.keys()
    if "entry_point" in reference:
        programs.add(reference["entry_point"])

    def passes(program: str, launcher: Launcher) -> bool:
        with launcher.functions([preamble, program]) as functions:
            names.update({name: _remote(functions, name) for name in programs})
            try:
                exec(tests, names)  # noqa: S102
            except MemoryError:
                raise RaisedError("MemoryError", "") from None
            except Exception:
                passed = False
            else:
                passed = True
            if functions.failure is not None:
                raise functions.failure
            return passed

    return passes


def _calls(reference: CodeReference) -> Passes:
    name, cases = reference["entry_point"], _cases(reference, "arguments", list)

    def passes(program: str, launcher: Launcher) -> bool:
        with launcher.functions([reference.get("preamble", ""), program]) as functions:
            return all(
                _as_lists(functions.call(name, tuple(arguments), {})) == _as_lists(output)
                for arguments, output in cases
            )

    return passes


def _stdin(reference: CodeReference) -> Passes:
    cases = _cases(reference, "input", str)

    def passes(program: str, launcher: Launcher) -> bool:
        sources = [reference.get("preamble", ""), program]
        return all(same_output(launcher.run_script(sources, given), output) for given, output in cases)

    return passes


def _cases(reference: CodeReference, given: str, kind: type) -> list[tuple[Any, Any]]:
    """(what is given, what must come of it); at least one."""
    cases: list[Any] = list(reference["cases"])[:MAX_CASES]
    pairs = [(case[given], case["output"]) for case in cases]
    if not pairs or not all(isinstance(found, kind) for found, _ in pairs):
        raise ValueError(f"a case without a {kind.__name__} as its {given!r}")
    return pairs


_KINDS: dict[str, Callable[[CodeReference], Passes]] = {"tests": _tests, "calls": _calls, "stdin": _stdin}


def _remote(functions: Functions, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return functions.call(name, arguments, keywords)
        except RaisedError as raised:
            raise _as_builtin(raised) from None

    call.__name__ = call.__qualname__ = name
    return call


def _as_builtin(raised: RaisedError) -> BaseException:
    """The same exception, where Python itself has it: tests may expect one."""
    kind = getattr(builtins, raised.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return raised
    try:
        return kind(raised.message)
    except TypeError:
        return raised


def _undefined(tests: str) -> set[str]:
    """Global names that the tests read and do not define, apart from Python's own."""
    module = symtable.symtable(tests, "<tests>", "exec")
    scopes, read = [module], set()
    bound = {*dir(builtins), "__name__"}
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        for symbol in scope.get_symbols():
            if scope is module or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
                if symbol.is_referenced():
                    read.add(symbol.get_name())
    return read - bound


def _as_lists(value: Any) -> Any:
    """JSON knows no tuples: a program may return either."""
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value
