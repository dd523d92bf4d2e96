"""Answers that are made to take time or to upset what reads them."""

from __future__ import annotations

import json
from collections import deque

from hypothesis import strategies as st


def hostile_answers(fences: int, blocks: int) -> list[str]:
    """Answers without a program, or with one that is hard to read; the longest of them have
    `fences` of code.

    blocks: of code that define or use 150 names each.
    """
    return [
        "```python\n" * fences,
        "```python\n" * fences + "```\n",
        " ```" * (4 * fences),
        "```\n" * (4 * fences),
        "````python\n" * fences + "```\n" * fences,
        "```python\n'''\n```\n" * fences,
        "```python\n" + "(" * 100_000 + "\n```",
        "```python\n" + "-" * 100_000 + "1\n```",
        "```python\nx = " + "[" * 90 + "]" * 90 + "\n```\n",
        "```python\n" + "a." * 60_000 + "a\n```",
        "```python\nf\0\n```",
        "- " * (2 * fences) + "```",
        "".join(
            f"```python\n{'; '.join(f'b{n}(a{one})' for one in range(150))}\n```\n"
            for n in range(blocks)
        ),
        "".join(
            f"```python\n{'; '.join(f'a{one} = a{one + 1}' for one in range(150))}\n```\n"
            for n in range(blocks)
        ),
    ]


FLOATS, INTEGERS = st.floats(allow_nan=False), st.integers(-(2**70), 2**70)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    FLOATS,
    st.text(max_size=5),
    st.binary(max_size=5),
    st.decimals(-(10**9), 10**9, places=3),
    st.fractions(-(10**9), 10**9, max_denominator=10**6),
    st.complex_numbers(allow_nan=False),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
HASHABLE = st.recursive(
    SCALARS, lambda items: st.tuples(items, items) | st.frozensets(items, max_size=3), max_leaves=4
)
VALUES = st.recursive(
    HASHABLE
    | st.lists(FLOATS, min_size=16, max_size=20)
    | st.lists(INTEGERS, min_size=16, max_size=20),
    lambda items: st.one_of(
        st.lists(items, max_size=4),
        st.tuples(items, items),
        st.dictionaries(HASHABLE, items, max_size=3),
        st.sets(HASHABLE, max_size=3),
        st.builds(deque, st.lists(items, max_size=3)),
    ),
    max_leaves=8,
)
"""Plain values, as a right program may return them."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda items: (
        st.lists(items)
        | st.dictionaries(
            st.sampled_from("tdsfbacrqnomyheixlu") | st.text(max_size=2), items, max_size=2
        )
    ),
)
RESULTS = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
"""Bytes that a program may send in place of a value."""
