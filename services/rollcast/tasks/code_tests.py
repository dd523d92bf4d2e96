"""Tests of published programming tasks, as references of the verifier `code`.

DeepCoder keeps the tests of its four parts in three forms, each a JSON text:
    taco                 {"inputs": [...], "outputs": [...], "fn_name": NAME where one is called}
    primeintellect       [{"type": "stdin_stdout" | "function_call",
                           "input", "output", "fn_name"}, ...]
    lcbv5, codeforces    [{"input", "output", "testtype": "stdin" | "functional"}, ...],
                         the name in `metadata`
LiveCodeBench keeps the last form in two fields, the private one packed (`unpack`).

Results are compared as each set's own grader does (`code_reference.EXACT`, `AS_TACO`): exactly for
the tasks of LiveCodeBench, lcbv5 included, and with TACO's tolerance for the others.
"""

import base64
import binascii
import json
import pickletools
import re
import zlib
from typing import Any

from rollcast.tasks.code_reference import (
    AS_TACO,
    EXACT,
    Call,
    CodeReference,
    Comparing,
    StdinCase,
    calls,
    stdin,
    tests,
)
from rollcast.tasks.fields import Row, RowError, text

MAX_UNPACKED_BYTES = 256 << 20
USUAL_IMPORTS = """\
import bisect, collections, copy, functools, heapq, itertools, json, math, operator, random, re, string, sys
from bisect import bisect_left, bisect_right, insort, insort_left, insort_right
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, merge, nlargest, nsmallest
from itertools import accumulate, chain, combinations, count, cycle, groupby, pairwise, permutations, product, repeat
from itertools import combinations_with_replacement, islice, starmap, takewhile, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, log, log2, perm, sqrt
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import *
"""  # noqa: E501
"""What judges of competitive programs offer without an import; starter code with `List[int]` counts
on it."""
_ASSERTED_CALL = re.compile(r"^    assertion\((\w+)\(\*inp\)", re.MULTILINE)
"""How every test of MBPP+ calls the function; some functions are named as one of Python's own."""
_TEXT_OPCODES = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE")
_HARMLESS_OPCODES = {
    "PROTO",
    "FRAME",
    "MEMOIZE",
    "BINPUT",
    "LONG_BINPUT",
    "PUT",
    "STOP",
    *_TEXT_OPCODES,
}


def humaneval(row: Row) -> CodeReference:
    """`test` defines check(candidate).

    The prompt, a function without a body, brings imports and helpers.
    """
    name = text(row, "entry_point")
    return tests(
        f"{text(row, 'test')}\n\ncheck({name})\n", preamble=text(row, "prompt"), entry_point=name
    )


def mbpp_plus(row: Row) -> CodeReference:
    """`test` is a whole program after the function."""
    code = text(row, "test")
    called = _ASSERTED_CALL.search(code)
    return tests(code, preamble="", entry_point=called[1] if called else None)


def deepcoder(row: Row) -> CodeReference:
    parsed_tests = _json(text(row, "tests"), "tests")
    if isinstance(parsed_tests, dict):
        inputs = parsed_tests.get("inputs")
        outputs = parsed_tests.get("outputs")
        if not (
            isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)
        ):
            raise RowError("field 'tests' holds no inputs and outputs of one length")
        pairs = list(zip(inputs, outputs, strict=True))
        name = parsed_tests.get("fn_name")
        return _reference(pairs, name, AS_TACO, wrapped=True)
    cases = _cases(parsed_tests, "tests")
    pairs = [(case.get("input"), case.get("output")) for case in cases]
    if cases and "testtype" in cases[0]:
        comparing = EXACT if _is_of_livecodebench(row) else AS_TACO
        return _functional(pairs, cases[0]["testtype"], _function_name(row), comparing)
    return _reference(pairs, cases[0].get("fn_name") if cases else None, AS_TACO, wrapped=True)


def livecodebench(row: Row) -> CodeReference:
    """Public and private tests together."""
    cases = _cases(_json(text(row, "public_test_cases"), "public_test_cases"), "public_test_cases")
    cases += _cases(unpack(text(row, "private_test_cases")), "private_test_cases")
    pairs = [(case.get("input"), case.get("output")) for case in cases]
    return _functional(
        pairs, cases[0].get("testtype", "stdin") if cases else "stdin", _function_name(row), EXACT
    )


def unpack(packed: str) -> Any:
    """Plain JSON, or JSON in a pickled string, zlib-compressed, in base64.

    Only a pickle of exactly one string is read, without unpickling it: a pickle is a program.
    """
    if packed.lstrip().startswith("["):
        return _json(packed, "private_test_cases")
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
        opcodes = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(data)]
    except (binascii.Error, zlib.error, ValueError) as error:
        raise RowError(
            f"field 'private_test_cases' cannot be unpacked ({str(error)[:100]})"
        ) from None
    pickled_texts = [argument for name, argument in opcodes if name in _TEXT_OPCODES]
    if len(pickled_texts) != 1 or not {name for name, _ in opcodes} <= _HARMLESS_OPCODES:
        raise RowError(
            "field 'private_test_cases' holds a pickle that is more than one text; it is not read"
        )
    return _json(str(pickled_texts[0]), "private_test_cases")


def _is_of_livecodebench(row: Row) -> bool:
    """Codeforces' rows, which are of the same form, have neither field."""
    return "metadata" in row or "starter_code" in row


def _functional(
    pairs: list[tuple[Any, Any]], kind: object, name: object, comparing: Comparing
) -> CodeReference:
    """LiveCodeBench: a call's arguments are JSON texts, one a line, and so is its result."""
    if kind != "functional":
        return _reference(pairs, None, comparing, wrapped=False)
    if not name:
        raise RowError("the tests call a function, and field 'metadata' does not name it")
    decoded = [
        (
            [_json(line, "input") for line in _plain(input_text).splitlines() if line.strip()],
            _json(_plain(expected_output), "output"),
        )
        for input_text, expected_output in pairs
    ]
    return _reference(decoded, name, comparing, wrapped=False)


def _reference(
    pairs: list[tuple[Any, Any]], name: object, comparing: Comparing, *, wrapped: bool
) -> CodeReference:
    """`wrapped`: TACO and its relatives write every result as a list of one."""
    if not pairs:
        raise RowError("there is no test")
    if not name:
        cases = [
            StdinCase(input=_plain(stdin_text), output=_plain(expected_output))
            for stdin_text, expected_output in pairs
        ]
        return stdin(cases, USUAL_IMPORTS, comparing)
    if not all(isinstance(case_input, list) for case_input, _ in pairs):
        raise RowError("the tests call a function, and an input is not a list of arguments")
    if wrapped and all(
        isinstance(wrapped_output, list) and len(wrapped_output) == 1 for _, wrapped_output in pairs
    ):
        pairs = [(call_arguments, output_list[0]) for call_arguments, output_list in pairs]
    called = [
        Call(arguments=arguments, output=expected_result) for arguments, expected_result in pairs
    ]
    # The usual imports except this one: a task called `gcd` is not solved by an empty program.
    preamble = f"{USUAL_IMPORTS}globals().pop({str(name)!r}, None)\n"
    return calls(str(name), called, preamble, comparing)


def _plain(raw_text: Any) -> str:
    """Some rows hold a list of lines."""
    if isinstance(raw_text, list):
        return "\n".join(map(str, raw_text))
    return "" if raw_text is None else str(raw_text)


def _function_name(row: Row) -> object:
    metadata = row.get("metadata")
    if isinstance(metadata, str) and metadata.strip():
        metadata = _json(metadata, "metadata")
    return metadata.get("func_name") if isinstance(metadata, dict) else None


def _cases(parsed_field: Any, field: str) -> list[dict[str, Any]]:
    if not isinstance(parsed_field, list) or not all(
        isinstance(case, dict) for case in parsed_field
    ):
        raise RowError(f"field {field!r} does not hold a list of tests")
    return list(parsed_field)


def _json(json_text: str, field: str) -> Any:
    try:
        return json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"field {field!r} is not JSON ({str(error)[:100]})") from None
