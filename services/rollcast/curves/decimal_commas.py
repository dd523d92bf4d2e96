"""Decimal commas in a table whose fields are told apart by something else."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WITHOUT_A_POINT = re.compile(r"[-+]?(\d+|\d*,\d+)(e[-+]?\d+)?\s?%?|nan", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}\s?%?")


def has_decimal_commas(column: Iterable[str]) -> bool:
    """Whether all are numbers without a point, or empty, and a comma of one cannot be but decimal."""
    numbers = [text.strip() for text in column if text.strip()]
    if not all(_WITHOUT_A_POINT.fullmatch(text) for text in numbers):
        return False
    return any(is_decimal(text) for text in numbers)


def is_decimal(text: str) -> bool:
    """Whether it is a number with a comma that cannot stand between thousands."""
    text = text.strip()
    return "," in text and bool(_WITHOUT_A_POINT.fullmatch(text)) and not _THOUSANDS.fullmatch(text)


def with_point(text: str) -> str:
    """The field with a decimal point, where it is a number with one comma."""
    return text.replace(",", ".") if _WITHOUT_A_POINT.fullmatch(text.strip()) else text
