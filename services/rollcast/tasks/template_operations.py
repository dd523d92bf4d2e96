"""Bounds for operations of chat templates: operators, calls, filters, and texts that are put
together.

`9 ** (9 ** 9)` and `'x'.center(10 ** 9)` are computed in one step, which no watchdog of the same
process can end: it holds Python's lock. jinja2's sandbox bounds `range` alone. A size is estimated
before the step; all results of one rendering have a bound too. Comparisons and slices are as in
Python.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2.runtime
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

from rollcast.tasks.template_sizes import (
    as_list,
    list_size,
    refuse_beyond,
    refuse_large_format,
    refuse_large_result,
    written_size,
)

_UNWRITTEN = {
    "abs", "attr", "batch", "count", "d", "default", "first", "float", "int", "items", "last",
    "length", "list", "map", "random", "reject", "rejectattr", "reverse", "select", "selectattr",
    "slice",
}  # fmt: skip
"""Filters that do not write their subject as text and compare nothing in it."""
_call_operation = ImmutableSandboxedEnvironment.call_binop
_call = ImmutableSandboxedEnvironment.call
_compile = ImmutableSandboxedEnvironment.from_string
_wrap_format = ImmutableSandboxedEnvironment.wrap_str_format
_rendering = threading.local()


def bound_operations() -> None:
    """Begin a rendering: bound the operations of each sandboxed template that this process compiles
    from now on.
    """
    _rendering.num_bytes = 0
    environment: Any = ImmutableSandboxedEnvironment
    environment.intercepted_binops = frozenset(("*", "**", "%", "+"))
    environment.call_binop = _call_operator
    environment.call = _call_function
    environment.from_string = _compile_with_bounds
    environment.wrap_str_format = _wrap_format_with_bounds
    environment.concat = staticmethod(_concatenate)
    for name in ("str_join", "markup_join"):
        join = getattr(jinja2.runtime, name)
        if not hasattr(join, "__wrapped__"):
            setattr(jinja2.runtime, name, _join_with_bounds(join))


def _count_result(result: Any) -> Any:
    """The result, whose bytes count for the rendering. Raises OverflowError."""
    if isinstance(result, str | bytes | list | tuple | dict):
        refuse_beyond(len(result))
        _count(sys.getsizeof(result))
    return result


def _count(num_bytes: int) -> None:
    _rendering.num_bytes = getattr(_rendering, "num_bytes", 0) + num_bytes
    # Bytes of all texts and lists of a rendering: a template that adds each message to a text makes
    # a chat many times
    if _rendering.num_bytes > 1 << 30:
        raise OverflowError(
            "the texts and lists that the chat template makes are too large together"
        )


def _call_operator(
    self: SandboxedEnvironment, context: Any, operator: str, left: Any, right: Any
) -> Any:
    # Largest integer that is multiplied or raised; its product takes microseconds.
    max_bits = 100_000
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * abs(right) > max_bits:
            raise OverflowError("a power in the chat template is too large")
    elif operator == "%" and isinstance(left, str | bytes):
        refuse_large_format(left if isinstance(left, str) else left.decode("latin-1"), right)
    elif operator == "+" and isinstance(left, str | list | tuple):
        right_size = written_size(right)
        refuse_beyond((len(left) if isinstance(left, str) else list_size(len(left))) + right_size)
        _count(right_size)  # slices of a text that a list keeps
    elif operator == "*":
        sizes = [_repeated_size(side) for side in (left, right)]
        for size, factor in zip(sizes, (right, left), strict=True):
            if size is not None and isinstance(factor, int):
                refuse_beyond(size * factor)
        if sizes == [None, None] and _num_bits(left) + _num_bits(right) > max_bits:
            raise OverflowError("a product in the chat template is too large")
    return _count_result(_call_operation(self, context, operator, left, right))


def _repeated_size(value: Any) -> int | None:
    """The size that each repetition of a text or list adds; None for other values."""
    if isinstance(value, str | bytes):
        return len(value)
    return written_size(value) if isinstance(value, list | tuple) else None


def _num_bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _call_function(self: Any, context: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
    name = getattr(function, "__name__", "")
    subject = getattr(function, "__self__", None)
    if name == "join" and isinstance(subject, str):
        arguments = tuple(
            as_list(items) if isinstance(items, Iterator) else items for items in arguments
        )
    refuse_large_result(name, arguments if subject is None else (subject, *arguments), named)
    return _count_result(_call(self, context, function, *arguments, **named))


def _compile_with_bounds(self: Any, source: Any, *arguments: Any, **named: Any) -> Any:
    for name, filter_function in self.filters.items():
        if not hasattr(filter_function, "is_bounded"):
            self.filters[name] = _filter_with_bounds(name, filter_function)
    self.finalize = self.finalize or _count_output
    return _compile(self, source, *arguments, **named)


def _filter_with_bounds(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Index of the subject; the context or environment may come first
    index = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def apply(*arguments: Any, **named: Any) -> Any:
        subject, *options = arguments[index:]
        if name not in _UNWRITTEN:
            subject = as_list(subject) if isinstance(subject, Iterator) else subject
            written_size(subject)
        if name == "format":
            refuse_large_format(str(subject), [*options, *named.values()])
        refuse_large_result("join filter" if name == "join" else name, (subject, *options), named)
        return _count_result(function(*arguments[:index], subject, *options, **named))

    apply.is_bounded = True  # type: ignore[attr-defined]
    return apply


def _wrap_format_with_bounds(self: Any, method: Any) -> Any:
    """Bounds `str.format` and `format_map` as the sandbox has them."""
    wrapped = _wrap_format(self, method)
    if wrapped is None:
        return None

    @functools.wraps(wrapped)
    def apply(*arguments: Any, **named: Any) -> Any:
        refuse_large_format(method.__self__, [*arguments, *named.values()])
        return wrapped(*arguments, **named)

    return apply


def _count_output(value: Any) -> Any:
    """A value that is printed."""
    written_size(value)
    return _count_result(value)


def _concatenate(texts: Iterable[str]) -> str:
    pieces = []
    size = 0
    for text in texts:
        pieces.append(text)
        size += len(text)
        refuse_beyond(size)
    return _count_result("".join(pieces))  # type: ignore[no-any-return]


def _join_with_bounds(join: Callable[[Any], str]) -> Callable[[Any], str]:
    """The operator `~`."""

    @functools.wraps(join)
    def apply(values: Any) -> str:
        written_size(values)
        return _count_result(join(values))  # type: ignore[no-any-return]

    return apply
