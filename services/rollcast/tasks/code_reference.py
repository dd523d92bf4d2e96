"""The reference of a programming task: the tests that the verifier `code` runs on the program in
the answer.

One JSON object, made by the mappings and read by the verifier:

    {"kind": "tests", "tests": PYTHON, "preamble": PYTHON, "entry_point": NAME}
        preamble and tests run as one module, in which the function NAME, and whatever else is not
        defined there, is the program's; right when nothing was raised. NAME is needed only if
        the preamble defines it or Python does
    {"kind": "stdin", "cases": [{"input": TEXT, "output": TEXT}, ...]}
        the program reads standard input and prints
    {"kind": "calls", "entry_point": NAME, "cases": [{"arguments": [...], "output": VALUE}, ...]}
        the function NAME, or the method NAME of a class `Solution`, returns VALUE

`preamble` may be empty or missing; in the last two kinds it runs before the program, in the same
module, and results are compared as `comparison` says (`rollcast.tasks.sandbox.comparison`). Every
case must pass.

    "comparison": "exact"        as LiveCodeBench compares
    "comparison": "float"        numbers within 1e-6, relative or absolute
    "comparison": "float", "tolerance": {"relative": R, "absolute": A}
                                 |result - expected| <= A + R |expected|, as numpy.allclose
    neither                      integers exactly, decimals within 1e-6, all else as text
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, Required, TypedDict, cast

_OUTPUT_KEY = '"output": '
"""Keys of every case, as `json.dumps` writes it."""


class StdinCase(TypedDict):
    input: str
    output: str


class Call(TypedDict):
    arguments: list[Any]
    output: Any


class Tolerance(TypedDict):
    """Tolerance of a number x: absolute + relative * |x|."""

    relative: float
    absolute: float


class Comparing(TypedDict, total=False):
    """How results are compared. Empty = by what each expected word or value is."""

    comparison: Literal["exact", "float"]
    tolerance: Tolerance


EXACT: Comparing = {"comparison": "exact"}
"""LiveCodeBench: github.com/LiveCodeBench/LiveCodeBench, lcb_runner/evaluation/testing_util.py."""
AS_TACO: Comparing = {"comparison": "float", "tolerance": {"relative": 1e-5, "absolute": 1e-8}}
"""numpy.allclose with its default tolerance: TACO's github.com/FlagOpen/TACO,
metrics/testing_util.py (`compare_std_results`), which DeepCoder's reward has copied:
github.com/rllm-org/rllm, rllm/rewards/code_utils/taco.py and codeforces.py."""


class CodeReference(Comparing):
    """Which keys there are depends on `kind`."""

    kind: Required[Literal["tests", "stdin", "calls"]]
    tests: NotRequired[str]
    preamble: NotRequired[str]
    entry_point: NotRequired[str]
    cases: NotRequired[Sequence[StdinCase] | Sequence[Call]]


def num_tests(reference: str) -> float:
    """The number of cases in a reference, as JSON text; infinity for kind `tests`, whose calls
    cannot be counted.

    Keys are counted rather than the text decoded, which may be some megabytes long: inside a text
    their quotation marks are escaped. Arguments that hold such a key themselves count too much,
    which costs nothing but patience.
    """
    return reference.count(_OUTPUT_KEY) or math.inf


def tests(code: str, preamble: str, entry_point: str | None) -> CodeReference:
    reference: CodeReference = {"kind": "tests", "tests": code, "preamble": preamble}
    return reference if entry_point is None else {**reference, "entry_point": entry_point}


def stdin(
    cases: Sequence[StdinCase], preamble: str, comparing: Comparing | None = None
) -> CodeReference:
    return cast(
        CodeReference, {"kind": "stdin", "preamble": preamble, "cases": cases, **(comparing or {})}
    )


def calls(
    entry_point: str, cases: Sequence[Call], preamble: str, comparing: Comparing | None = None
) -> CodeReference:
    reference = {"kind": "calls", "entry_point": entry_point, "preamble": preamble, "cases": cases}
    return cast(CodeReference, {**reference, **(comparing or {})})
