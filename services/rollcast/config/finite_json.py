"""JSON that may be damaged or hostile: numbers are finite and of a usual size, and depth is bounded."""

import json
import math
from typing import Any, NoReturn

LARGEST_WHOLE_NUMBER = 2**63
"""Whole numbers are less, whatever their sign: an int64 holds them, and a float comes near."""


def finite_json(text: str | bytes) -> Any:
    """The value. Raises ValueError, in a few words, for anything except JSON of finite numbers."""
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > 20 or abs(number := int(digits)) >= LARGEST_WHOLE_NUMBER:
        raise ValueError(f"the number {digits[:40]} is too large")
    return number
