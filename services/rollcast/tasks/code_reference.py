"""The reference of a programming task: what the verifier `code` runs against the program in the answer.

One JSON object, made by the mappings and read by the verifier:

    {"kind": "tests", "tests": PYTHON, "preamble": PYTHON, "entry_point": NAME}
        preamble and tests run as one module, in which the function NAME, and whatever else is not defined there, is the
        program's; right when nothing was raised. NAME is needed only where the preamble defines it or Python does
    {"kind": "stdin", "cases": [{"input": TEXT, "output": TEXT}, ...]}
        the program reads standard input and prints; outputs are compared line by line, white space at the ends aside
    {"kind": "calls", "entry_point": NAME, "cases": [{"arguments": [...], "output": VALUE}, ...]}
        the function NAME, or the method NAME of a class `Solution`, returns VALUE (a tuple equals a list)

`preamble` may be empty or missing; in the last two kinds it runs before the program, in the same module. Every case
must pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

_OUTPUT_KEY = '"output": '
"""Of every case, as `json.dumps` writes it."""


class StdinCase(TypedDict):
    input: str
    output: str


class Call(TypedDict):
    arguments: list[Any]
    output: Any


class CodeReference(TypedDict):
    """Which keys there are depends on `kind`."""

    kind: Literal["tests", "stdin", "calls"]
    tests: NotRequired[str]
    preamble: NotRequired[str]
    entry_point: NotRequired[str]
    cases: NotRequired[Sequence[StdinCase] | Sequence[Call]]


def num_tests(reference: str) -> float:
    """How many cases a reference, as JSON text, holds; infinity for one of kind `tests`, whose calls nobody can count.

    Keys are counted rather than the text decoded, which may be some megabytes long: inside a text their quotation
    marks are escaped. Arguments that hold such a key themselves count too much, which costs nothing but patience.
    """
    return reference.count(_OUTPUT_KEY) or math.inf


def tests(code: str, preamble: str, entry_point: str | None) -> CodeReference:
    reference: CodeReference = {"kind": "tests", "tests": code, "preamble": preamble}
    return reference if entry_point is None else {**reference, "entry_point": entry_point}


def stdin(cases: Sequence[StdinCase], preamble: str) -> CodeReference:
    return {"kind": "stdin", "preamble": preamble, "cases": cases}


def calls(entry_point: str, cases: Sequence[Call], preamble: str) -> CodeReference:
    return {"kind": "calls", "entry_point": entry_point, "preamble": preamble, "cases": cases}
