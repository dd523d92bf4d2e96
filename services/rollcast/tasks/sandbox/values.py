"""Plain values between a judge and a program, as tagged JSON: no decoded value can run code or lie
about `==`.

    (1, {2: "a"})  <->  {"t": [1, {"d": [[2, "a"]]}]}

Numbers, text, None and lists are written as they are; everything else is an object with one key,
its tag. Many numbers of one type go over packed. Subclasses become their base class (a Counter as a
dict, a named tuple as a tuple), numpy values as Python's.
"""

import base64
import datetime
import itertools
import json
import types
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

_CODES = {float: "d", int: "q"}
_SCALARS = frozenset({type(None), bool, int, float, str})
_SUBCLASSED: tuple[Any, ...] = (int, float, str, list)
_EMPTY: tuple[Any, ...] = ([], (), range(0), {}, {}.values(), {}.items(), set(), "", b"")
_ITERATORS: tuple[Any, ...] = tuple(
    {type(iter(empty)) for empty in _EMPTY}
    | {
        types.GeneratorType,
        map,
        filter,
        zip,
        enumerate,
        reversed,
        type(reversed([])),
        itertools.chain,
    }
)
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class Opaque:
    """Replaces values that are not plain data (a match, a function, an instance): true, not None,
    equal to itself only."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any) -> bytes:
    """Raises ValueError for a number with too many digits, RecursionError for a value nested too
    deep.
    """
    return json.dumps(_tag_value(value), separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Any:
    """Raises ValueError or RecursionError for what `encode` cannot have written."""
    try:
        return _untag_value(json.loads(data.decode("utf-8", "surrogatepass")))
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"not an encoded value: {error!r}") from error


def _tag_value(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in (list, tuple):
        # Shorter lists are not worth the packing
        if len(value) >= 16 and (packed := _pack_numbers(value)):
            return {"l" if kind is list else "u": packed}
        parts = [item if type(item) in _SCALARS else _tag_value(item) for item in value]
        return parts if kind is list else {"t": parts}
    for base, tag, parts_of, _ in _KINDS:
        if isinstance(value, base):
            return {tag: parts_of(value)}
    for plain in _SUBCLASSED:
        if isinstance(value, plain):
            return _tag_value(plain(value))
    if isinstance(value, _ITERATORS):
        # A program may return an endless generator; what lies beyond is cut off
        return {"i": _items(itertools.islice(value, 1 << 20))}
    if isinstance(value, _VIEWS):
        return _items(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return _tag_value(value.tolist())
    return {"x": kind.__name__}


def _pack_numbers(numbers: Sequence[Any]) -> list[str] | None:
    """Doubles or 64-bit integers in base64, led by their type; None if the items are not all of one
    of these types.
    """
    code = _CODES.get(type(numbers[0]))
    if code is None or len(set(map(type, numbers))) != 1:
        return None
    try:
        return [code, base64.b64encode(array(code, numbers)).decode()]
    except OverflowError:
        return None


def _unpack_numbers(parts: Any) -> list[Any]:
    code, data = parts
    if code not in _CODES.values():
        raise ValueError("not a packed type")
    numbers = array(code)
    numbers.frombytes(base64.b64decode(data, validate=True))
    return numbers.tolist()


def _items(value: Any) -> list[Any]:
    return [_tag_value(item) for item in value]


def _pairs(value: Any) -> list[Any]:
    return [[_tag_value(key), _tag_value(item)] for key, item in dict.items(value)]


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _list(parts: Any) -> list[Any]:
    if not isinstance(parts, list):
        raise ValueError("not a list")
    return [_untag_value(tagged_value) for tagged_value in parts]


_KINDS: tuple[tuple[Any, str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (tuple, "t", _items, lambda parts: tuple(_list(parts))),
    (
        dict,
        "d",
        _pairs,
        lambda parts: {_untag_value(key): _untag_value(item) for key, item in parts},
    ),
    (set, "s", _items, lambda parts: set(_list(parts))),
    (frozenset, "f", _items, lambda parts: frozenset(_list(parts))),
    (bytes, "b", _base64, lambda parts: base64.b64decode(parts, validate=True)),
    (bytearray, "a", _base64, lambda parts: bytearray(base64.b64decode(parts, validate=True))),
    (
        complex,
        "c",
        lambda value: [value.real, value.imag],
        lambda parts: complex(*map(float, parts)),
    ),
    (
        range,
        "r",
        lambda value: [value.start, value.stop, value.step],
        lambda parts: range(*map(int, parts)),
    ),
    (deque, "q", _items, lambda parts: deque(_list(parts))),
    (Decimal, "n", str, lambda parts: Decimal(parts)),
    (
        Fraction,
        "o",
        lambda value: [value.numerator, value.denominator],
        lambda parts: Fraction(*map(int, parts)),
    ),
    (datetime.datetime, "m", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    (datetime.date, "y", datetime.date.isoformat, datetime.date.fromisoformat),
    (datetime.time, "h", datetime.time.isoformat, datetime.time.fromisoformat),
    (
        datetime.timedelta,
        "e",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*map(int, parts)),
    ),
)
"""Class, tag, what is written, and how the value is built from that again. The first class that
fits counts."""
_REBUILD: dict[str, Callable[[Any], Any]] = {
    "l": _unpack_numbers,
    "u": lambda parts: tuple(_unpack_numbers(parts)),
    "i": lambda parts: iter(_list(parts)),
    "x": lambda kind: Opaque(str(kind)),
    **{tag: rebuild for _, tag, _, rebuild in _KINDS},
}


def _untag_value(value: Any) -> Any:
    if isinstance(value, list):
        return [item if type(item) in _SCALARS else _untag_value(item) for item in value]
    if isinstance(value, dict):
        ((tag, parts),) = value.items()
        return _REBUILD[tag](parts)
    return value
