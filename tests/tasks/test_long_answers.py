"""A proof: hostile answers in their full length, and the values of programs in hundreds of
examples.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings

from rollcast.tasks.sandbox.code_answer import find_program
from rollcast.tasks.sandbox.values import decode, encode
from tests.tasks.hostile_answers import RESULTS, VALUES, hostile_answers

NUM_FENCES, NUM_BLOCKS = 50_000, 64


@pytest.mark.parametrize("index", range(len(hostile_answers(1, 1))))
def test_finding_a_program_in_a_long_answer_takes_linear_time(index: int) -> None:
    """Quadratic time would be minutes."""
    hostile = hostile_answers(NUM_FENCES, NUM_BLOCKS)[index]
    for names in ((), ("f", "g")):
        find_program(hostile, names)


@settings(max_examples=200)
@given(VALUES)
def test_hundreds_of_plain_values_go_over_unchanged(value: Any) -> None:
    assert decode(encode(value)) == value
    assert type(decode(encode(value))) is type(value)


@settings(max_examples=500)
@given(RESULTS)
def test_hundreds_of_results_are_a_value_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        decode(data)
