from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading
from rollcast.tasks.arithmetic import worked_answer
from rollcast.tasks.grading import grade, grading_seconds
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import BUILT_IN, MIN_REWARD, Grade, make_grade

TABLE = Path(__file__).parents[2] / "docs" / "data.md"
RIGHT, WRONG = Grade(1.0, "ok"), Grade(0.0, "wrong")


def test_every_verifier_has_its_row_in_the_documents() -> None:
    section = TABLE.read_text().partition("\n## Verifiers\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == sorted(BUILT_IN)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(Grading(deadline_seconds=60.0))) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("completion", "reference", "expected"),
    [
        ("<think>is it 4?</think> 5 ", "5", RIGHT),
        ("<think>5", "5", WRONG),
        ("5", "5", RIGHT),
        ("5.", "5", WRONG),
        ("a</think>5</think>6", "6", RIGHT),
    ],
)
def test_exact_reads_the_answer_after_the_think_block(
    completion: str, reference: str, expected: Grade
) -> None:
    assert grade("exact", completion, json.dumps(reference)) == expected


@given(a=st.integers(0, 10**12 - 1), b=st.integers(0, 10**12 - 1))
def test_noiseless_worked_steps_are_right_and_any_other_sum_is_wrong(a: int, b: int) -> None:
    answer = worked_answer(a, b, random.Random(0), noise=0.0)
    assert grade("arithmetic", answer, json.dumps(str(a + b))) == RIGHT
    assert grade("arithmetic", answer, json.dumps(str(a + b + 1))) == WRONG


@pytest.mark.parametrize(("a", "b"), [(5, 5), (64, 46), (999, 1), (128, 7), (0, 0), (19, 91)])
def test_each_step_is_the_sum_of_its_digits_and_carry(a: int, b: int) -> None:
    steps = worked_answer(a, b, random.Random(0), noise=0.0).partition("|")[0].split(";")[:-1]
    assert steps
    for step in steps:
        digits, total = step.split("=")
        assert sum(map(int, digits)) == int(total)


@pytest.mark.parametrize("completion", ["102", "|102 ", "|0102", "|102|", "", "|"])
def test_arithmetic_wants_the_number_alone_after_the_bar(completion: str) -> None:
    assert grade("arithmetic", completion, '"102"') == WRONG


@pytest.mark.parametrize(
    ("completion", "reference", "expected"),
    [
        ("<think>maybe \\boxed{3}</think> so \\boxed{\\frac{1}{2}}", "0.5", RIGHT),
        ("\\boxed{2x+1}", "1 + 2x", RIGHT),
        ("\\boxed{7}", "8", WRONG),
        ("<think>\\boxed{8}", "8", WRONG),
        ("no idea", "8", WRONG),
    ],
)
def test_math_agrees_with_algebra(
    completion: str, reference: str, expected: Grade, sandbox: Sandbox
) -> None:
    assert grade("math", completion, json.dumps(reference), sandbox=sandbox) == expected


def test_an_unreadable_reference_is_the_graders_error_not_a_wrong_answer() -> None:
    assert grade("exact", "5", "{not json").status == "error"


@pytest.mark.parametrize(
    ("verifier", "cases", "seconds"),
    [
        ("code", 1, 10.0),
        ("code", 4, 12.0),
        ("code", 60, 50.0),
        ("code", None, 50.0),
        ("math", 60, 10.0),
    ],
)
def test_the_more_tests_a_task_has_the_longer_its_grading_may_take(
    verifier: str, cases: int | None, seconds: float
) -> None:
    case = {"input": '{"output": 1} "output": ', "output": '"output": '}
    reference = json.dumps(
        {"kind": "tests", "tests": "f()"} if cases is None else {"cases": [case] * cases}
    )
    settings = Grading(seconds_per_test=3.0)
    assert grading_seconds(settings, verifier, reference) == seconds
    assert settings.longest_seconds == 50.0
    assert (
        grading_seconds(settings.model_copy(update={"deadline_seconds": 7.0}), verifier, reference)
        == 7.0
    )


def test_an_unknown_verifier_is_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'maths'.*arithmetic, code, .*math"):
        grade("maths", "5", '"5"')


def test_the_smallest_reward_that_is_one_is_paid() -> None:
    assert make_grade(MIN_REWARD, "") == Grade(MIN_REWARD, "ok")
    assert make_grade(MIN_REWARD / 2, "") == Grade(0.0, "wrong")
