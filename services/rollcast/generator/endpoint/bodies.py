"""Bodies of requests as JSON, bounded before anything is made of them: a few megabytes can be
gigabytes of objects.

    bytes -> containers, texts and commas are counted -> parsed -> depth and characters are measured

All of it takes a fraction of a second for the largest body.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json

from rollcast.generator.endpoint.refusals import RefusedRequestError

SMALL_BYTES = 256 << 10
"""Whatever a smaller body holds takes some megabytes, and no noticeable time."""
MAX_VALUES = 300_000
"""Values of one body, numbers included."""
NUMBER_DIGITS = 256
"""A number of twice that many digits is refused: reading it takes time with the square of its
length."""
MAX_TOKENS = 1_500_000
"""Values of a body that is a history in tokens, besides its lists, objects and texts."""
MAX_DEPTH = 64
"""Lists and objects inside each other. Python's own limit is about 1,000, deeper than any schema
goes."""
CHUNK_BYTES = 1 << 20
_FIRST_HALF = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_SECOND_HALF = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_HALVES = (
    re.compile(_FIRST_HALF + b"(?!" + _SECOND_HALF + b")"),
    re.compile(_SECOND_HALF + b"(?<!" + _FIRST_HALF + _SECOND_HALF + b")"),
)
"""Halves of surrogate pairs without the other half, where every backslash begins an escape."""
_CONTAINERS = frozenset((dict, list))
_QUOTE, _COMMA, _BRACKET, _BRACE, _ZERO, _NINE = b'",[{09'


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of parts that a JSON text has."""

    containers: int
    texts: int
    commas: int
    has_long_number: bool


class Extent(NamedTuple):
    """How large a value of JSON is."""

    characters: int
    """The approximate size as JSON."""
    depth: int
    """Lists and objects inside each other. More than MAX_DEPTH = too deep to be read."""


def read_json(content: bytes | bytearray, max_values: int = MAX_VALUES) -> Any:
    """Raises RefusedRequestError for invalid JSON, and for more values than a request may have."""
    if len(content) > SMALL_BYTES:
        counts = count(content)
        for num_values, limit, noun in (
            (counts.commas, max_values, "values"),
            # Texts, lists and objects of one body. A history of 10,000 messages, half of them tool
            # calls, has 125,000.
            (counts.containers + counts.texts, 150_000, "texts, lists and objects"),
            # Lists and objects of one body, the slowest values. That history has 35,000.
            (counts.containers, 75_000, "lists and objects"),
        ):
            if num_values > limit:
                raise RefusedRequestError(
                    f"the body has more than {limit:,} {noun}", 413, "too_large"
                )
        if counts.has_long_number:
            raise RefusedRequestError(
                f"a number of the body has more than {NUMBER_DIGITS} digits", 413, "too_large"
            )
    if any(lone_half.search(content) for lone_half in _LONE_HALVES):
        content = _without_half_emoji(content)
    is_wide = len(content) > SMALL_BYTES and not content.isascii()
    try:
        # Without making one text of it all first, which may take four bytes for each letter
        if is_wide:
            return from_json(content, cache_strings=False)
        # As UTF-8, in which the signs were counted: Python would guess UTF-16 and UTF-32, too.
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise RefusedRequestError("the body is not JSON", code="not_json") from None


def _without_half_emoji(content: bytes | bytearray) -> bytes | bytearray:
    """JavaScript's texts may be cut within a character; no tokenizer takes the half that is left.
    It becomes `?`.

    At most 10,000 of each half are replaced: more would take a second. Those that stay are refused
    later.
    """
    # No valid JSON has zero bytes, so that they stand for a backslash that is a letter and begins
    # no escape.
    content = content.replace(rb"\\", b"\0\0")
    for lone_half in _LONE_HALVES:
        content = lone_half.sub(b"?", content, count=10_000)
    return content.replace(b"\0\0", rb"\\")


def count(content: bytes | bytearray) -> Counts:
    """Count a JSON text without parsing it."""
    # Of the same length without escapes: every quote that is left begins or ends a text.
    plain = np.frombuffer(content.replace(b"\\\\", b"__").replace(b'\\"', b"__"), dtype=np.uint8)
    containers = 0
    commas = 0
    quotes = 0
    has_long_number = False
    for start in range(0, len(plain), CHUNK_BYTES):
        chunk = plain[start : start + CHUNK_BYTES]
        is_quote = chunk == _QUOTE
        # True from an opening quote up to the closing one, if the chunk begins outside a text.
        inside = np.bitwise_xor.accumulate(is_quote)
        # After an odd number of quotes the chunk begins inside a text.
        outside = inside if quotes % 2 else ~inside
        quotes += int(np.count_nonzero(is_quote))
        commas += int(np.count_nonzero((chunk == _COMMA) & outside))
        containers += int(np.count_nonzero(((chunk == _BRACKET) | (chunk == _BRACE)) & outside))
        # Only aligned blocks are checked: a number of twice NUMBER_DIGITS digits always fills one
        # of them.
        is_digit = ((chunk >= _ZERO) & (chunk <= _NINE) & outside)[
            : len(chunk) // NUMBER_DIGITS * NUMBER_DIGITS
        ]
        has_long_number |= bool(is_digit.reshape(-1, NUMBER_DIGITS).all(axis=1).any())
    return Counts(containers, quotes // 2, commas, has_long_number)


def bounded_integer(digits: str) -> int:
    """An integer of JSON. Raises ValueError for one of too many digits."""
    if len(digits) > NUMBER_DIGITS:
        raise ValueError(f"a number has more than {NUMBER_DIGITS} digits")
    return int(digits)


def measure(value: Any) -> Extent:
    """The extent of a value. Lists and objects that are nested too deeply are left out."""
    characters = len(value) if isinstance(value, str) else 0
    depth = 0
    level = [value] if isinstance(value, dict | list) else []
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            # What a number, or a comma and its quotes, counts as
            characters += 8 * len(container)
            if isinstance(container, dict):
                characters += sum(map(len, container))
            kinds = set(map(type, items))
            if str in kinds:
                characters += sum([len(item) for item in items if isinstance(item, str)])
            if not _CONTAINERS.isdisjoint(kinds):  # most lists have numbers or texts alone
                inner += [item for item in items if isinstance(item, dict | list)]
        level = inner
    return Extent(characters, depth)
