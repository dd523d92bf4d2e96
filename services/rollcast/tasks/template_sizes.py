"""How large a value of a chat template is, and how large a result will be at most, before it is
computed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2.utils import Namespace

_DIGITS = re.compile(r"\d+")
_WIDTH_FROM_ARGUMENT = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")
"""`%*d` and `{:{}}`."""


def refuse_beyond(size: int) -> None:
    """Raises OverflowError for a text or list of this many items if it is too long."""
    # Longest text or list that an operation may make, which takes some milliseconds. The longest
    # chat has less.
    max_items = 10_000_000
    if size > max_items:
        raise OverflowError(
            f"an operation of the chat template makes more than {max_items:,} characters or items"
        )


def list_size(num_items: int) -> int:
    """The characters that a list counts as, without those of its items."""
    return num_items * 8  # bytes of a reference


def written_size(value: Any, indent: int = 0) -> int:
    """Characters of a value, and those of all that it holds, as often as they are written. Raises
    OverflowError.

    `indent`: blanks before an item, for each level.
    """
    size = 0
    levels: list[tuple[Any, int]] = [(value, 0)]
    while levels:
        item, level = levels.pop()
        size += list_size(1) + indent * level + (len(item) if isinstance(item, str | bytes) else 0)
        inner: Iterable[Any] = ()
        if isinstance(item, Namespace):
            inner = (object.__getattribute__(item, "_Namespace__attrs"),)
        elif isinstance(item, Mapping):
            inner = [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            refuse_beyond(size + list_size(len(levels) + len(item)))
            inner = item
        for inner_item in inner:
            if isinstance(inner_item, int | float | None):
                size += list_size(1) + indent * (level + 1)
            else:
                levels.append((inner_item, level + 1))
        refuse_beyond(size + list_size(len(levels)))
    return size


def as_list(values: Iterator[Any]) -> list[Any]:
    """The items of a lazy filter such as `map`. Raises OverflowError."""
    items = []
    size = 0
    for item in values:
        items.append(item)
        size += written_size(item)
        refuse_beyond(size)
    return items


def refuse_large_format(text: str, arguments: Any) -> None:
    """Raises OverflowError for a `%` format, or one of `str.format`, whose result would be too
    long.
    """
    if _WIDTH_FROM_ARGUMENT.search(text):
        raise OverflowError(
            "a width in the chat template is given by an argument; write it into the format"
        )
    widths = sum(int(digits[:20]) for digits in _DIGITS.findall(text))
    num_places = text.count("%") + text.count("{")
    refuse_beyond(len(text) + widths + num_places * written_size(arguments))


def refuse_large_result(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raises OverflowError if a method or filter of this name would make too much.

    Its subject comes first.
    """
    estimate = _ESTIMATES.get(name)
    if estimate is None:
        return
    try:
        size = estimate(*arguments, **named)
    except (TypeError, AttributeError):  # the operation itself refuses these arguments
        return
    refuse_beyond(size)


def _int_or_zero(number: Any) -> int:
    return number if isinstance(number, int) else 0


def _sum_widths(_subject: Any, *sizes: Any, **named: Any) -> int:
    return sum(map(_int_or_zero, (*sizes, *named.values())))


def _size_with_replacement(s: Any, old: Any, new: Any, *_: Any, **__: Any) -> int:
    text = str(s)
    return len(text) + text.count(str(old)) * len(str(new))


def _joint_size(text: str, items: Any) -> int:
    return written_size(items) + len(text) * len(items)


def _joint_size_of_filter(items: Any, separator: Any = "", *_: Any, **named: Any) -> int:
    return _joint_size(str(named.get("d", separator)), items)


def _size_with_indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (
        len(width) if isinstance(width, str) else _int_or_zero(width)
    )


def _with_tabs(text: str, tabsize: int = 8) -> int:
    return len(text) + text.count("\t") * _int_or_zero(tabsize)


def _translation_size(text: str, table: Any) -> int:
    return len(text) * max(
        (len(value) for value in table.values() if isinstance(value, str)), default=1
    )


def _json_size(value: Any, *_: Any, indent: Any = 0, **__: Any) -> int:
    return written_size(value, len(indent) if isinstance(indent, str) else _int_or_zero(indent))


def _precision_size(_value: Any, precision: int = 0, *_: Any, **__: Any) -> int:
    return abs(precision) * 10_000  # 10**precision is computed


def _lorem_ipsum_size(*sizes: Any, **named: Any) -> int:
    # Characters of a word, of as many paragraphs as words at most
    return 10 * max(map(_int_or_zero, (*sizes, *named.values())), default=0) ** 2


def _product_size(text: str, *options: Any, **named: Any) -> int:
    return len(text) * max(1, *(written_size(option) for option in (*options, *named.values(), "")))


def _square_size(text: Any, *_: Any, **__: Any) -> int:
    return len(str(text)) ** 2  # patterns that go back


# Their arguments have the names of the operations' own, which a template may use.
_ESTIMATES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(
        ("center", "ljust", "rjust", "zfill", "to_bytes", "batch", "slice"), _sum_widths
    ),
    "replace": _size_with_replacement,
    "join": _joint_size,
    "join filter": _joint_size_of_filter,
    "indent": _size_with_indent,
    "expandtabs": _with_tabs,
    "translate": _translation_size,
    "tojson": _json_size,
    "round": _precision_size,
    "generate_lorem_ipsum": _lorem_ipsum_size,
    "wordwrap": _product_size,
    "urlize": _square_size,
}
