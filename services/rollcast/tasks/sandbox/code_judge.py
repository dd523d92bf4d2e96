"""Unit tests on a program that runs in another process.

The tests run here, the program there. The compared values are built here from plain values, so a
program cannot change `==`, `assert` or the verdict; and it never sees the expected values, so it
cannot answer from that either.
"""

import ast
import builtins
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from rollcast.tasks.code_reference import CodeReference
from rollcast.tasks.sandbox.code_answer import find_program
from rollcast.tasks.sandbox.comparison import ResultComparison
from rollcast.tasks.sandbox.definitions import bound_names, undefined_names
from rollcast.tasks.sandbox.launcher import Functions, Launcher, RaisedError
from rollcast.tasks.sandbox.limits import BUSY, ProgramError
from rollcast.tasks.verifiers import Grade


def grade_code(completion: str, reference: CodeReference, launcher: Launcher) -> Grade:
    """`ok` if the program of the answer passes every test (`rollcast.tasks.code_reference`).

    Raises whatever an unusable reference makes go wrong before the program is run.
    """
    # Digits of a number that a program answers with; comparing longer ones would take most of the
    # time
    sys.set_int_max_str_digits(100_000)
    tests = _KINDS[reference["kind"]](reference)
    program = find_program(completion, tests.names, tests.predefined_names)
    if program is None:
        return Grade(0.0, "wrong")
    try:
        passed = tests.passes(program, launcher)
    except ProgramError as failure:
        if failure.reason == "busy":
            return Grade(0.0, "error", "busy", BUSY)
        return Grade(0.0, "wrong", failure.reason)
    except RaisedError as raised:
        return Grade(0.0, "wrong", "memory" if raised.kind == "MemoryError" else "")
    except OSError:
        raise
    except (
        Exception
    ):  # the reference was read before; only what the program answered can be to blame
        return Grade(0.0, "wrong", "garbled")
    return Grade(float(passed), "ok" if passed else "wrong")


@dataclass(frozen=True, slots=True)
class _Tests:
    passes: Callable[[list[str], Launcher], bool]
    """Whether a program, given as sources that make up one module, passes."""
    names: Collection[str]
    """What the tests call; empty = the program is run as a script."""
    predefined_names: Collection[str]
    """Names that are there before the program runs."""


def _tests(reference: CodeReference) -> _Tests:
    """The preamble runs on both sides: its helpers are the tests' own, whatever the program makes
    of them. The entry point, and every name that neither the tests nor the preamble define, is the
    program's."""
    source = reference["tests"]
    preamble = reference.get("preamble", "")
    tests = compile(source, "<tests>", "exec", dont_inherit=True)
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(preamble, "<preamble>", "exec", dont_inherit=True), names)  # noqa: S102
    predefined_names = frozenset(names)
    programs = undefined_names(source) - predefined_names
    if "entry_point" in reference:
        programs.add(reference["entry_point"])

    def passes(program: list[str], launcher: Launcher) -> bool:
        with launcher.functions([preamble, *program]) as functions:
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

    return _Tests(passes, programs, predefined_names)


def _calls(reference: CodeReference) -> _Tests:
    name = reference["entry_point"]
    cases = _cases(reference, "arguments", list)
    preamble = reference.get("preamble", "")
    is_same_value = ResultComparison(reference).same_value

    def passes(program: list[str], launcher: Launcher) -> bool:
        with launcher.functions([preamble, *program]) as functions:
            return all(
                is_same_value(functions.call(name, tuple(arguments), {}), output)
                for arguments, output in cases
            )

    return _Tests(passes, [name], _bound_by(preamble))


def _stdin(reference: CodeReference) -> _Tests:
    cases = _cases(reference, "input", str)
    preamble = reference.get("preamble", "")
    is_same_text = ResultComparison(reference).same_text

    def passes(program: list[str], launcher: Launcher) -> bool:
        return all(
            is_same_text(launcher.run_script([preamble, *program], input_text), output)
            for input_text, output in cases
        )

    return _Tests(passes, (), _bound_by(preamble))


def _bound_by(preamble: str) -> Collection[str]:
    return frozenset(
        name for statement in ast.parse(preamble).body for name in bound_names(statement)
    )


def _cases(reference: CodeReference, input_field: str, kind: type) -> list[tuple[Any, Any]]:
    """(input, expected output); at least one."""
    # Further tests are not run: this many decide
    cases: list[Any] = list(reference["cases"])[:512]
    pairs = [(case[input_field], case["output"]) for case in cases]
    if not pairs or not all(isinstance(case_input, kind) for case_input, _ in pairs):
        raise ValueError(f"a case without a {kind.__name__} as its {input_field!r}")
    return pairs


_KINDS: dict[str, Callable[[CodeReference], _Tests]] = {
    "tests": _tests,
    "calls": _calls,
    "stdin": _stdin,
}


def _remote(functions: Functions, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return functions.call(name, arguments, keywords)
        except RaisedError as raised:
            raise _as_builtin(raised) from None

    call.__name__ = call.__qualname__ = name
    return call


def _as_builtin(raised: RaisedError) -> BaseException:
    """Python's exception of that name, if it has one: tests may expect it."""
    kind = getattr(builtins, raised.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return raised
    try:
        return kind(raised.message)
    except TypeError:
        return raised
