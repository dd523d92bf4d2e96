"""Printed words and returned values of references without a comparison, and that the other rules
stay as they are.
"""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.tasks.code_reference import AS_TACO, EXACT, Comparing, stdin
from rollcast.tasks.sandbox.comparison import ResultComparison

WORDS = [
    # An integer: words of exactly its value.
    ("3", "3", True),
    ("3", "3.0", True),
    ("3", "3.", True),
    ("3", "+3", True),
    ("0", "-0.0", True),
    ("-7", "-7.00", True),
    ("12000", "1.2e4", True),
    ("10000000000000000", "1e+16", True),
    ("2000000", "2000001.0", False),
    ("2000000", "2000000.5", False),
    ("50000000000000000", "50000000000000001", False),
    ("1000", "1_000", False),
    ("1000", "1,000", False),
    ("12", "１２", False),
    ("12", "١٢", False),
    ("7", "007", False),
    ("1", "True", False),
    ("3", "3/1", False),
    ("3", "2.9999999999", False),
    # A decimal: within the tolerance.
    ("2.0", "2", True),
    ("0.333333", "0.3333333333333333", True),
    (".5", "0.5000004", True),
    ("1.5e3", "1500", True),
    ("-0.50", "-.5", True),
    ("1000000.0", "1000000.5", True),
    ("1.0", "0.999999", True),
    ("0.1", "0.100001", True),
    ("0.1", "0.10000101", False),
    ("1000000.0", "1000002", False),
    ("2.5", "２.５", False),
    ("0.1", "0_0.1", False),
    ("0.33333", "0.3333333333333333", False),
    # An exponent: only words that are no integers.
    ("1e-7", "0.0000001", True),
    ("1E5", "100000.0", True),
    ("12e3", "12000", False),
    ("12e3", "1.2e4", True),
    ("1e400", "1.0e400", True),
    # All else is text.
    ("0011", "0011", True),
    ("0011", "11", False),
    ("007", "7", False),
    ("00.5", "0.5", False),
    ("+5", "5", False),
    ("08.30", "8.3", False),
    ("00e12", "0", False),
    ("1.2.3", "1.2.30", False),
    ("1_000", "1000", False),
    ("١٢", "12", False),
    ("nan", "NaN", False),
    ("inf", "Infinity", False),
    ("0x10", "16", False),
    ("YES", "Yes", False),
    ("12e3 ab", "12000 ab", False),
    ("1 0011 2.0", "1.0 0011 2", True),
]
VALUES = [
    (3, 3, True),
    (3, 3.0, True),
    (2000000, 2000001.0, False),
    (2000000, 2000000.5, False),
    (10**17, 10**17 + 1, False),
    (2.0, 2, True),
    (0.3, 0.1 + 0.2, True),
    (1000000.0, 1000002, False),
    (1, True, False),
    (True, 1, False),
    ("0011", "11", False),
    ("1000", 1000, False),
    ([1, [2.0]], (1, (2,)), True),
    ([2000000, 1], [2000001.0, 1], False),
    ({"1": 5000000}, {1: 5000001.0}, False),
    ({"1": 5, "2": 6}, {1: 5, 2: 6}, True),
    ({"1": 5}, {1: 4, "1": 5}, False),
    (float("nan"), float("nan"), True),
]
TEXT_OF_NUMBERS = [("0011", "11"), ("12e3", "12000"), ("1000", "1_000"), ("12", "１２")]


@pytest.mark.parametrize(("expected", "printed", "is_same"), WORDS)
def test_a_printed_word_is_compared_by_what_the_expected_one_is(
    expected: str, printed: str, is_same: bool
) -> None:
    assert ResultComparison({"kind": "stdin"}).same_text(f"{printed}\n", f"{expected}\n") is is_same


@pytest.mark.parametrize(("expected", "value", "is_same"), VALUES)
def test_a_value_is_compared_by_what_the_expected_one_is(
    expected: Any, value: Any, is_same: bool
) -> None:
    assert ResultComparison({"kind": "calls"}).same_value(value, expected) is is_same


@pytest.mark.parametrize("comparing", [EXACT, AS_TACO, {"comparison": "float"}])
@pytest.mark.parametrize(
    ("expected", "printed"), [("0011", "11"), ("12e3", "12000"), ("1000", "1_000"), ("12", "１２")]
)
def test_references_that_name_a_comparison_keep_it(
    comparing: Comparing, expected: str, printed: str
) -> None:
    assert ResultComparison(stdin([], "", comparing)).same_text(printed, expected)


@pytest.mark.parametrize("printed", ["1000001", "1_000_001", "１０００００１", "+1000001"])
def test_integers_are_compared_exactly_with_a_tolerance_too(printed: str) -> None:
    for comparing in (AS_TACO, Comparing(comparison="float")):
        comparison = ResultComparison(stdin([], "", comparing))
        assert not comparison.same_text(printed, "1000000")
        assert comparison.same_text(printed, "1000001")


def test_a_comparison_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="neither 'exact' nor 'float'"):
        ResultComparison({"kind": "stdin", "comparison": "near"})  # type: ignore[typeddict-item]
