"""Countdown and knights and knaves, against brute force
and against answers nobody should accept.
"""

from __future__ import annotations

import itertools
import json
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.datasets import CountdownDataset
from rollcast.config.errors import UserError
from rollcast.tasks.countdown import distinct_puzzles
from rollcast.tasks.grading import grade


def reachable(numbers: tuple[Fraction, ...]) -> set[Fraction]:
    """Every value of every expression that uses each number once."""
    if len(numbers) == 1:
        return set(numbers)
    found = set()
    for i, j in itertools.permutations(range(len(numbers)), 2):
        rest = tuple(numbers[k] for k in range(len(numbers)) if k not in (i, j))
        a, b = numbers[i], numbers[j]
        for value in (a + b, a - b, a * b, *([a / b] if b else [])):
            found |= reachable((*rest, value))
    return found


def test_every_generated_puzzle_has_a_solution_and_none_comes_twice() -> None:
    dataset = CountdownDataset(numbers=(3, 4), max_number=20, max_target=200, size=60)
    puzzles = distinct_puzzles(dataset, 60)
    assert puzzles == distinct_puzzles(dataset, 60)
    assert puzzles != distinct_puzzles(dataset.model_copy(update={"seed": 2}), 60)
    assert len({(tuple(sorted(numbers)), target) for numbers, target in puzzles}) == 60
    for numbers, target in puzzles:
        assert len(numbers) in (3, 4)
        assert all(1 <= number <= 20 for number in numbers)
        assert 1 <= target <= 200
    for numbers, target in puzzles[:6]:
        assert target in reachable(tuple(map(Fraction, numbers)))


def test_too_many_puzzles_of_too_few_numbers_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match=r"size = 9999: only \d+ different countdown puzzles"):
        distinct_puzzles(
            CountdownDataset(numbers=(2, 2), max_number=5, max_target=10, size=9_999), 9_999
        )


def countdown(answer: str, numbers: list[int], target: int) -> str:
    return grade("countdown", answer, json.dumps({"numbers": numbers, "target": target})).status


@pytest.mark.parametrize(
    "answer",
    [
        "(25 - 3) * 2",
        "<think>2*3*25?</think>Take three away first.\n\n(25-3)*2 = 44",
        "2 × (25 − 3)",
        "So \\boxed{2 \\times (25 - 3)}.",
        "**2*(25-3)**",
    ],
)
def test_right_expressions_are_accepted(answer: str) -> None:
    assert countdown(answer, [3, 25, 2], 44) == "ok"


@pytest.mark.parametrize(
    "answer",
    [
        "44",
        "2*(25-3)*1",
        "25+25-3*2",
        "2*22",
        "(25-3)*2\nThat is all.",
        "<think>(25-3)*2",
        "44 = (25-3)*2",
        "(25-3)**2",
        "(25-3)//2",
        "2/(25-25)",
        "__import__('os').system('true')",
        "(" * 150 + "1" + ")" * 150,
        "(" * 99 + "25" + ")" * 99 + "-3",
        "9" * 100_000,
        "-3+25*2",
        "",
        " \n ",
    ],
)
def test_anything_else_is_wrong_and_quickly_so(answer: str) -> None:
    started = time.process_time()
    assert countdown(answer, [3, 25, 2], 44) == "wrong"
    assert time.process_time() - started < 5


@settings(max_examples=25)
@given(
    numbers=st.lists(st.integers(1, 30), min_size=2, max_size=4),
    signs=st.lists(st.sampled_from("+-*/"), min_size=3, max_size=3),
    target=st.integers(-50, 500),
)
def test_the_value_is_exact(numbers: list[int], signs: list[str], target: int) -> None:
    expression = str(numbers[0]) + "".join(
        f" {s} {n}" for s, n in zip(signs, numbers[1:], strict=False)
    )
    value = eval(_as_fractions(expression), {"F": Fraction})
    assert (countdown(expression, numbers, target) == "ok") == (value == target)
    if value.denominator == 1:
        assert countdown(expression, numbers, int(value)) == "ok"
        assert countdown(expression, [*numbers, 1], int(value)) == "wrong"


def _as_fractions(expression: str) -> str:
    return " ".join(f"F({word})" if word.isdigit() else word for word in expression.split())


KNIGHTS = {"Zoey": "knight", "Jacob": "knave", "Ann": "knave"}


def knights(answer: str) -> str:
    return grade("knights-and-knaves", answer, json.dumps(KNIGHTS)).status


@pytest.mark.parametrize(
    "answer",
    [
        "Zoey is a knight.\nJacob is a knave.\nAnn is a knave.",
        "<think>Zoey is a knave?</think> **Ann**: knave, **Jacob**: knave, **Zoey**: knight",
        (
            "If Zoey is a knave then Jacob is a knight: no. (1) Zoey is a knight (2) jacob is a "
            "Knave (3) Ann is a knave"
        ),
    ],
)
def test_the_right_kinds_are_accepted(answer: str) -> None:
    assert knights(answer) == "ok"


@pytest.mark.parametrize(
    "answer",
    [
        "Zoey is a knight. Jacob is a knave.",
        "Zoey is a knight. Jacob is a knave. Ann is a knight.",
        "Zoey is a knight. Jacob is a knave. Ann is a knave. Ann is a knight.",
        "Zoey is a knight. Jacob is a knight. Jacob is a knave. Ann is a knight. Ann is a knave.",
        "Joann is a knave. Zoey is a knight. Jacob is a knave.",
        "<think>Zoey is a knight. Jacob is a knave. Ann is a knave.",
        "",
    ],
)
def test_other_kinds_and_both_kinds_are_wrong(answer: str) -> None:
    assert knights(answer) == "wrong"


def test_a_hostile_answer_is_read_in_a_moment() -> None:
    started = time.process_time()
    assert knights(("Zoey" + " " * 200_000 + "is ") * 4) == "wrong"
    assert time.process_time() - started < 5
