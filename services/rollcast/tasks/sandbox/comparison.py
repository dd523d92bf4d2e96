"""Whether a program's result is the expected one: printed text line by line, returned values as
JSON would hold them.

exact    LiveCodeBench's rule: lines of text are equal, or all their words are equal decimals;
         values are equal as Python's `==` has it, True and 1 included
float    numbers may differ by the tolerance, unless both are integers; True is not 1
neither  references without a comparison: an expected integer equals numbers of exactly its value,
         an expected decimal those within the tolerance; every other word is text; True is not 1

Always, a tuple equals a list, a dictionary's keys compare as JSON writes them (1 as "1"), and the
value NaN equals NaN.
"""

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from rollcast.tasks.code_reference import CodeReference

_INTEGER = re.compile(r"[+-]?\d+(?:_\d+)*")
"""An integer as Python reads one, digits of every alphabet included."""
_DIGITS = r"(?:0|[1-9][0-9]*)"
_EXPONENT = r"(?:[eE][+-]?[0-9]+)"
_EXPECTED_INTEGER = re.compile(f"-?{_DIGITS}")
_EXPECTED_DECIMAL = re.compile(
    rf"-?(?:{_DIGITS}\.[0-9]*|\.[0-9]+){_EXPONENT}?|-?{_DIGITS}{_EXPONENT}"
)
"""Bit strings, codes, dates and digests, which have leading zeros, signs or letters, are no
numbers."""
_PRINTED_NUMBER = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT}?")
_REAL = (int, float, Decimal, Fraction)

Close = Callable[[float, float], bool]
"""(result, expected) -> whether they are near enough to each other."""


class ResultComparison:
    """One reference's way to compare."""

    def __init__(self, reference: CodeReference) -> None:
        """Raises ValueError for a comparison or tolerance that does not exist."""
        kind = reference.get("comparison")
        if kind not in (None, "exact", "float"):
            raise ValueError(f"comparison {kind!r}: neither 'exact' nor 'float'")
        self._close: Close | None = None if kind == "exact" else _close(reference)
        self._goes_by_expected = kind is None
        self._same_word = {
            None: self._as_expected,
            "exact": _same_decimal,
            "float": self._same_number,
        }[kind]

    def same_text(self, output: str, expected: str) -> bool:
        """White space at the ends of the text and of each line does not count."""
        output_lines, expected_lines = (
            [line.strip() for line in text.strip().split("\n")] for text in (output, expected)
        )
        return len(output_lines) == len(expected_lines) and all(
            map(self._same_line, output_lines, expected_lines)
        )

    def same_value(self, value: Any, expected: Any) -> bool:
        """`expected` was read from JSON."""
        if isinstance(expected, list):
            if not isinstance(value, list | tuple) or len(value) != len(expected):
                return False
            return all(map(self.same_value, value, expected))
        if isinstance(expected, dict):
            if not isinstance(value, dict) or len(value) != len(expected):  # 1 and "1" are two keys
                return False
            items = {_json_key(key): item for key, item in value.items()}
            return items.keys() == expected.keys() and all(
                self.same_value(item, expected[key]) for key, item in items.items()
            )
        return self._same_scalar(value, expected)

    def _same_scalar(self, value: Any, expected: Any) -> bool:
        if _is_nan(value) and _is_nan(expected):
            return True
        if self._close is None:
            return bool(value == expected)
        if isinstance(value, bool) or isinstance(expected, bool):
            return type(value) is type(expected) and bool(value == expected)
        if not (isinstance(value, _REAL) and isinstance(expected, _REAL)):
            return bool(value == expected)
        if value == expected:
            return True
        if self._goes_by_expected:
            return isinstance(expected, float) and self._near(value, expected)
        return not (isinstance(value, int) and isinstance(expected, int)) and self._near(
            value, expected
        )

    def _near(self, value: Any, expected: Any) -> bool:
        try:
            output_number = float(value)
            expected_number = float(expected)
        except (OverflowError, ValueError):
            return False
        return (
            math.isfinite(output_number)
            and math.isfinite(expected_number)
            and self._close is not None
            and self._close(output_number, expected_number)
        )

    def _same_line(self, output_line: str, expected_line: str) -> bool:
        if output_line == expected_line:
            return True
        output_words = output_line.split()
        expected_words = expected_line.split()
        if len(output_words) != len(expected_words):
            return False
        return all(map(self._same_word, output_words, expected_words))

    def _as_expected(self, output_word: str, expected_word: str) -> bool:
        """By what the expected word is: the text of a number decides whether another may stand for
        it.
        """
        if output_word == expected_word:
            return True
        if not _PRINTED_NUMBER.fullmatch(output_word):
            return False
        if _EXPECTED_INTEGER.fullmatch(expected_word):
            return _same_decimal(output_word, expected_word)
        if not _EXPECTED_DECIMAL.fullmatch(expected_word):
            return False
        # 2 is 2.0, but 12000 is no other way to write 12e3, which may be a code.
        may_differ = "." in expected_word or not _INTEGER.fullmatch(output_word)
        return may_differ and (
            _same_decimal(output_word, expected_word) or self._near(output_word, expected_word)
        )

    def _same_number(self, output_word: str, expected_word: str) -> bool:
        if output_word == expected_word or _same_decimal(output_word, expected_word):
            return True
        if _INTEGER.fullmatch(output_word) and _INTEGER.fullmatch(expected_word):
            return False
        try:
            value = float(output_word)
            expected = float(expected_word)
        except ValueError:
            return False
        return (math.isnan(value) and math.isnan(expected)) or self._near(value, expected)


def _close(reference: CodeReference) -> Close:
    tolerance = reference.get("tolerance")
    if tolerance is None:
        # Relative or absolute, whichever allows more: what judges of competitions usually allow
        # 0.999999 is within the tolerance of 1, and their difference in floats is slightly more
        allowed = 1e-6 * (1 + 1e-9)
        return lambda got, expected: abs(got - expected) <= max(allowed, allowed * abs(expected))
    relative = float(tolerance["relative"])
    absolute = float(tolerance["absolute"])
    return lambda got, target: abs(got - target) <= absolute + relative * abs(target)


def _same_decimal(output_word: str, expected_word: str) -> bool:
    try:
        return Decimal(output_word) == Decimal(expected_word)
    except InvalidOperation:
        return False


def _is_nan(value: object) -> bool:
    return isinstance(value, float | Decimal) and value != value


def _json_key(key: object) -> Any:
    """The text that JSON makes of a key; another kind of key stays, and equals none of JSON's."""
    return json.dumps(key) if isinstance(key, bool | int | float | None) else key
