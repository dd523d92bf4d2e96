"""The verifier `code`: which program is taken, three kinds of tests, limits, and values between
program and judge.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rollcast.config.bounds import LEAST_WAIT_SECONDS
from rollcast.config.tasks import Grading
from rollcast.tasks import code_reference
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.code_answer import find_program
from rollcast.tasks.sandbox.comparison import ResultComparison
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.sandbox.values import Opaque, decode, encode
from rollcast.tasks.verifiers import Grade
from tests.tasks.hostile_answers import RESULTS, VALUES, hostile_answers

asserts = code_reference.tests
calls = functools.partial(code_reference.calls, preamble="")
stdin = functools.partial(code_reference.stdin, preamble="")
NEEDS_PROTECTIONS = pytest.mark.protections
RIGHT, WRONG = Grade(1.0, "ok"), Grade(0.0, "wrong")
MEMORY_MIB = 256
TEST_SECONDS = 0.4
HASTY_WAIT_SECONDS = 3.0
"""For programs that sleep until their wall time is over."""
PATIENT_WAIT_SECONDS = 60.0
"""For programs that compute until their processor time is over, however busy the machine is."""
NUM_FENCES, NUM_BLOCKS = 2_500, 6
SLEEPS = "import time\ndef f(x):\n    time.sleep(0.4)\n    return x"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(
        Grading(deadline_seconds=60.0, seconds_per_test=TEST_SECONDS, memory_mib=MEMORY_MIB)
    )
    yield made
    made.close()


def hasty(*, deadline_seconds: float, seconds_per_test: float) -> Limits:
    return Limits(deadline_seconds, seconds_per_test, MEMORY_MIB << 20, HASTY_WAIT_SECONDS)


def fenced(program: str) -> str:
    return f"<think>```python\nno\n```</think>Here:\n```python\n{program}\n```\nDone."


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```Python3\na\n```", "a\n"),
        ("```python\na\n```\nbetter:\n```python\nb\n```", "b\n"),
        ("```python\na\n```\nit prints\n```text\n5\n```", "a\n"),
        ("<think>```python\na\n```</think>none", None),
        ("<think>```python\na\n```", None),
        ("<think>x</think>```python\nb\n```", "b\n"),
        ("```python\na\n```\n```python\nb", "a\n"),
        ("```python\nx = '''\n  ```\n'''\n```", "x = '''\n  ```\n'''\n"),
        ("a = 1", None),
        ("```python\n", None),
        ("```python", None),
        ("", None),
        ("```c++\nint x;\n```", None),
        (f"```python\n{'#' * (1 << 17)}\n```", None),
    ],
)
def test_only_a_closed_block_of_python_after_the_think_block_is_a_program(
    completion: str, program: str | None
) -> None:
    assert find_program(completion) == (None if program is None else [program])


@pytest.mark.parametrize("hostile", hostile_answers(NUM_FENCES, NUM_BLOCKS))
def test_finding_a_program_in_a_hostile_answer_raises_nothing(hostile: str) -> None:
    """In their full length, where quadratic time would be minutes, they are in
    test_long_answers.py.
    """
    for names in ((), ("f", "g")):
        find_program(hostile, names)


CASES = [
    (
        asserts("assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'", "", None),
        "def add(a, b): return a + b",
        RIGHT,
    ),
    (
        asserts("assert add(1, 2) == 3\nassert add(2, 2) == 5", "", None),
        "def add(a, b): return a + b",
        WRONG,
    ),
    (asserts("assert add(1, 2) == 3", "", None), "def add(a, b) return a + b", WRONG),
    (asserts("assert add(1, 2) == 3", "", None), "def plus(a, b): return a + b", WRONG),
    (asserts("assert sum(1, 2) == 3", "", "sum"), "def sum(a, b): return a + b", RIGHT),
    # A helper of the preamble is the tests' own, a function that the preamble only declares is the
    # program's.
    (
        asserts(
            "assert inc(1) == two()", "def two(): return 2\ndef inc(x):\n    '''adds 1'''", "inc"
        ),
        "def two(): return 1\ndef inc(x): return x",
        WRONG,
    ),
    (
        asserts(
            "def check(c):\n    assert c(1) == two()\ncheck(inc)",
            "def two(): return 2\ndef inc(x):\n    '''1'''",
            "inc",
        ),
        "def inc(x): return x + two() - 1",
        RIGHT,
    ),
    (
        asserts("try:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False", "", None),
        "def f(x):\n    if x < 0: raise ValueError('negative')",
        RIGHT,
    ),
    (
        asserts("assert f('ab') is not None and f('b') is None", "", None),
        "import re\ndef f(s): return re.match('a', s)",
        RIGHT,
    ),
    (
        asserts("assert list(f(3)) == [0, 1, 2] and f(0) is not None", "", None),
        "def f(n): yield from range(n)",
        RIGHT,
    ),
    (
        asserts("import numpy as np\nassert np.allclose(f([1.0]), [2.0])", "", None),
        "import numpy\ndef f(x): return numpy.array(x) * 2",
        RIGHT,
    ),
    (
        asserts("assert f([3, 1]) == {'a': (1, {2})}", "", None),
        "def f(x): return {'a': (1, {2})}",
        RIGHT,
    ),
    (calls("add", [{"arguments": [1, 2], "output": 3}]), "def add(a, b): return a + b", RIGHT),
    (
        calls("add", [{"arguments": [1, 2], "output": 3}]),
        "class Solution:\n    def add(self, a, b): return a + b",
        RIGHT,
    ),
    (
        calls("pair", [{"arguments": [1], "output": [1, [1]]}]),
        "def pair(a): return (a, (a,))",
        RIGHT,
    ),
    (
        calls("add", [{"arguments": [1, 2], "output": 3}, {"arguments": [2, 2], "output": 5}]),
        "def add(a, b): return a + b",
        WRONG,
    ),
    (
        stdin([{"input": "2 3\n", "output": "5\n"}, {"input": "1 1", "output": "2"}]),
        "print(sum(map(int, input().split())))",
        RIGHT,
    ),
    (
        stdin([{"input": "2\n3\n", "output": "2\n3"}]),
        "import sys\nfor line in sys.stdin: print(line.strip() + ' ')",
        RIGHT,
    ),
    (stdin([{"input": "2 3\n", "output": "5\n"}]), "print(6)", WRONG),
    (stdin([{"input": "", "output": "5"}]), "print(5)\nraise ValueError", WRONG),
    (stdin([{"input": "", "output": "5"}]), "print(5)\nimport sys\nsys.exit(3)", WRONG),
    (stdin([{"input": "", "output": "5"}]), "print(5)\nimport sys\nsys.exit()", RIGHT),
    (stdin([{"input": "", "output": "5"}]), "if __name__ == '__main__': print(5)", RIGHT),
    (stdin([{"input": "x" * 300_000, "output": "300000"}]), "print(len(input()))", RIGHT),
    (stdin([{"input": "x" * 300_000, "output": "5"}]), "print(5)", RIGHT),
    # Competitive programs start a thread for its stack, and recurse deep.
    (
        stdin([{"input": "50000", "output": "50000"}]),
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
        "def deep(n): return n and 1 + deep(n - 1)\n"
        "def main(): print(deep(int(input())))\nt = "
        "threading.Thread(target=main)\nt.start()\nt.join()",
        RIGHT,
    ),
]


@NEEDS_PROTECTIONS
@pytest.mark.parametrize(("reference", "program", "expected"), CASES)
def test_right_programs_pass_and_wrong_ones_fail(
    sandbox: Sandbox, reference: Any, program: str, expected: Grade
) -> None:
    assert sandbox.grade("code", fenced(program), json.dumps(reference)) == expected


@NEEDS_PROTECTIONS
@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("def f(x):\n    while True: pass", "wrong", "time"),
        ("while True: pass", "wrong", "time"),
        ("def f(x): return 'x' * (1 << 40)", "wrong", "memory"),
        ("import os\ndef f(x): os._exit(0)", "wrong", "exit"),
        ("import ctypes\ndef f(x): ctypes.string_at(0)", "wrong", "crash"),
        ("import os\ndef f(x): os.write(3, b'\\0\\0\\0\\1{')", "wrong", "garbled"),
        ("import os\ndef f(x): os.write(3, b'\\xff' * 100)", "wrong", "output"),
        ("def f(x):\n    r = []\n    for _ in range(10**5): r = [r]\n    return r", "wrong", ""),
    ],
)
def test_what_the_sandbox_stopped_is_named_and_is_a_wrong_answer(
    sandbox: Sandbox, program: str, status: str, reason: str
) -> None:
    grade = sandbox.grade(
        "code", fenced(program), json.dumps(asserts("assert f(1) == 1", "", None))
    )
    assert (grade.status, grade.reward, grade.reason) == (status, 0.0, reason)


@NEEDS_PROTECTIONS
def test_a_program_that_sleeps_is_too_slow(sandbox: Sandbox) -> None:
    program = fenced("import time\ndef f(x): time.sleep(60)")
    limits = hasty(deadline_seconds=60.0, seconds_per_test=TEST_SECONDS)
    grade = sandbox.grade(
        "code", program, json.dumps(asserts("assert f(1) == 1", "", None)), limits=limits
    )
    assert (grade, grade.reason) == (WRONG, "time")


@NEEDS_PROTECTIONS
@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("while True: print('x' * 4096)", "wrong", "output"),
        ("while True: pass", "wrong", "time"),
        ("x = bytearray(1 << 40)", "wrong", "exit"),
        ("import os\nos.close(1)\nwhile True: pass", "wrong", "time"),
    ],
)
def test_scripts_are_stopped_as_well(
    sandbox: Sandbox, program: str, status: str, reason: str
) -> None:
    grade = sandbox.grade(
        "code", fenced(program), json.dumps(stdin([{"input": "1", "output": "2"}]))
    )
    assert (grade.status, grade.reason) == (status, reason)


@NEEDS_PROTECTIONS
@pytest.mark.parametrize(
    ("reference", "program", "least_wait_seconds"),
    [
        (asserts("for _ in range(1000): f(1)", "", None), "while True: pass", PATIENT_WAIT_SECONDS),
        (stdin([{"input": "1", "output": ""}] * 500), "while True: pass", PATIENT_WAIT_SECONDS),
        (calls("f", [{"arguments": [1], "output": 1}] * 500), SLEEPS, HASTY_WAIT_SECONDS),
    ],
)
def test_a_program_at_work_when_the_whole_gradings_time_is_over_is_wrong(
    sandbox: Sandbox, reference: Any, program: str, least_wait_seconds: float
) -> None:
    """Each test has time left, all of them together have not.

    More of them: test_slow_programs.py.
    """
    limits = Limits(0.5, 600.0, MEMORY_MIB << 20, least_wait_seconds)
    grade = sandbox.grade("code", fenced(program), json.dumps(reference), limits=limits)
    assert (grade, grade.reason) == (WRONG, "time")


@NEEDS_PROTECTIONS
def test_a_judge_that_hangs_itself_is_no_wrong_answer(sandbox: Sandbox) -> None:
    """Here the data set's own tests never end, whatever the program does."""
    reference = json.dumps(asserts("f(1)\nimport time\ntime.sleep(600)", "", None))
    limits = Limits(0.5, 600.0, MEMORY_MIB << 20, least_wait_seconds=1.0)
    grade = sandbox.grade("code", fenced("def f(x): return x"), reference, limits=limits)
    assert (grade, grade.reason) == (Grade(0.0, "timeout"), "time")


def test_a_short_limit_is_not_over_because_the_machine_was_busy_for_a_moment() -> None:
    """What a grading of a run has, where the tests above wait for less."""
    assert Limits(1.0, 1.0, MEMORY_MIB << 20).backstop_seconds == 1.0 + LEAST_WAIT_SECONDS
    assert LEAST_WAIT_SECONDS == 10.0


@NEEDS_PROTECTIONS
def test_a_tests_own_except_does_not_hide_what_ended_the_program(sandbox: Sandbox) -> None:
    hiding = "try:\n    f(1)\nexcept Exception:\n    pass"
    limits = Limits(60.0, TEST_SECONDS, MEMORY_MIB << 20, PATIENT_WAIT_SECONDS)
    for program, status in (
        ("import os\ndef f(x): os._exit(0)", "wrong"),
        ("def f(x):\n    while 1: pass", "wrong"),
    ):
        grade = sandbox.grade(
            "code", fenced(program), json.dumps(asserts(hiding, "", None)), limits=limits
        )
        assert grade.status == status


@NEEDS_PROTECTIONS
@pytest.mark.parametrize(
    "reference",
    [
        "{not json",
        "[]",
        "{}",
        '{"kind": "no"}',
        '{"kind": "tests"}',
        '{"kind": "tests", "tests": "assert ("}',
        '{"kind": "tests", "tests": "f(1)", "preamble": "1 / 0"}',
        '{"kind": "stdin", "cases": []}',
        '{"kind": "stdin", "cases": [{"input": 3, "output": "3"}]}',
        '{"kind": "calls", "cases": [{"arguments": [1], "output": 1}]}',
        '{"kind": "calls", "entry_point": "f", "cases": [{"arguments": 1}]}',
    ],
)
def test_an_unusable_reference_is_the_graders_error(sandbox: Sandbox, reference: str) -> None:
    assert sandbox.grade("code", fenced("def f(x): return 1"), reference) == Grade(0.0, "error")


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1 2\n3\n", "1 2 \n3", True),
        ("1.50\n", "1.5", True),
        ("1e3", "1000", True),
        ("1 2", "1  2", True),
        ("1\n\n2", "1\n2", False),
        ("12", "1 2", False),
        ("YES", "Yes", False),
    ],
)
@pytest.mark.parametrize("comparison", ["exact", "float"])
def test_outputs_are_compared_line_by_line(
    comparison: Any, output: str, expected: str, same: bool
) -> None:
    assert (
        ResultComparison({"kind": "stdin", "comparison": comparison}).same_text(output, expected)
        is same
    )


@settings(max_examples=25)
@given(VALUES)
def test_plain_values_go_over_unchanged(value: Any) -> None:
    assert decode(encode(value)) == value
    assert type(decode(encode(value))) is type(value)


def test_types_and_odd_values_go_over() -> None:
    class Named(tuple[int, ...]):
        pass

    for value in (
        [1, True, 1.0, -0.0],
        (math.inf,),
        list(range(20)),
        tuple(map(float, range(20))),
        [True] * 20,
        [2**80] * 20,
    ):
        assert repr(decode(encode(value))) == repr(value)
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(Counter("aab"))) == {"a": 2, "b": 1}
    assert type(decode(encode(Counter("aab")))) is dict
    assert decode(encode(Named((1, 2)))) == (1, 2)
    assert decode(encode({1: 2}.keys())) == [1]
    assert list(decode(encode(x * x for x in range(3)))) == [0, 1, 4]
    assert decode(encode(np.arange(3) / 2)) == [0.0, 0.5, 1.0]
    assert decode(encode(np.float64(0.5))) == 0.5
    assert decode(encode(np.bool_(True))) is True
    assert decode(encode(range(3))) == range(3)
    assert decode(encode([Decimal("1.10"), Fraction(1, 3), datetime.date(2020, 1, 2)])) == [
        Decimal("1.10"),
        Fraction(1, 3),
        datetime.date(2020, 1, 2),
    ]
    opaque = decode(encode(re.match("a", "a")))
    assert isinstance(opaque, Opaque)
    assert opaque != decode(encode(re.match("a", "a")))


@settings(max_examples=25)
@given(RESULTS)
def test_whatever_a_program_answers_is_a_value_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        decode(data)
