"""A proof: programs and tests that take their time, whatever kind of reference asks for them."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rollcast.config.tasks import Grading
from rollcast.tasks import code_reference
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade

asserts = functools.partial(code_reference.tests, preamble="", entry_point=None)
calls = functools.partial(code_reference.calls, preamble="")
stdin = functools.partial(code_reference.stdin, preamble="")
pytestmark = pytest.mark.protections
RIGHT, WRONG = Grade(1.0, "ok"), Grade(0.0, "wrong")
MEMORY_MIB = 256
HASTY_WAIT_SECONDS = 3.0
"""For programs that sleep until their wall time is over."""
BUSY_SECONDS = 100.0
PATIENT_WAIT_SECONDS = 60.0
"""For programs that compute until their processor time is over, however busy the machine is."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(Grading(deadline_seconds=60.0, memory_mib=MEMORY_MIB))
    yield made
    made.close()


def hasty(*, deadline_seconds: float, seconds_per_test: float) -> Limits:
    return Limits(deadline_seconds, seconds_per_test, MEMORY_MIB << 20, HASTY_WAIT_SECONDS)


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def graded_when_free(sandbox: Sandbox, program: str, reference: Any, limits: Limits) -> Grade:
    """Graded again while other programs of the machine leave it no processor core: no answer was
    judged then.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        grade = sandbox.grade("code", program, json.dumps(reference), limits=limits)
        if grade.reason != "busy" or time.monotonic() > until:
            return grade


@pytest.mark.parametrize(
    "reference",
    [
        asserts("assert f(1) == 1"),
        asserts("for _ in range(1000): f(1)"),
        calls("f", [{"arguments": [1], "output": 1}] * 500),
        stdin([{"input": "1", "output": ""}] * 500),
    ],
)
def test_a_program_at_work_when_the_whole_gradings_time_is_over_is_wrong(
    sandbox: Sandbox, reference: Any
) -> None:
    """Each test has time left, all of them together have not."""
    limits = hasty(deadline_seconds=1.5, seconds_per_test=600.0)
    program = fenced("import time\ndef f(x):\n    time.sleep(0.4)\n    return x\nf(1)")
    slow = graded_when_free(sandbox, program, reference, limits)
    patient = dataclasses.replace(limits, least_wait_seconds=PATIENT_WAIT_SECONDS)
    endless = sandbox.grade(
        "code", fenced("while True: pass"), json.dumps(reference), limits=patient
    )
    few = reference["kind"] == "tests" and "range" not in reference["tests"]
    assert (slow, slow.reason) == ((RIGHT, "") if few else (WRONG, "time"))
    assert (endless, endless.reason) == (WRONG, "time")


@pytest.mark.parametrize("hanging", ["while True: pass", "import time\ntime.sleep(600)"])
def test_a_judge_that_hangs_itself_is_no_wrong_answer(sandbox: Sandbox, hanging: str) -> None:
    """Here the data set's own tests never end, whatever the program does."""
    reference = json.dumps(asserts(f"f(1)\n{hanging}"))
    limits = hasty(deadline_seconds=1.0, seconds_per_test=600.0)
    grade = sandbox.grade("code", fenced("def f(x): return x"), reference, limits=limits)
    assert (grade, grade.reason) == (Grade(0.0, "timeout"), "time")
