"""Bounds for single operations of chat templates.

`9 ** (9 ** 9)` in a template is computed in one step, which no watchdog of the same process can end: it holds Python's
lock. jinja2's sandbox bounds `range` alone.
"""

from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

MAX_BITS = 100_000
"""Largest integer that is multiplied or raised; its product takes microseconds."""
MAX_ITEMS = 10_000_000
"""Longest repeated text or list, which takes some milliseconds."""
_call_operation = ImmutableSandboxedEnvironment.call_binop


def bound_operations() -> None:
    """Bound `*` and `**` of each sandboxed template that this process compiles from now on."""
    ImmutableSandboxedEnvironment.intercepted_binops = frozenset(("*", "**"))
    ImmutableSandboxedEnvironment.call_binop = _call_bounded  # type: ignore[method-assign]


def _call_bounded(self: SandboxedEnvironment, context: Any, operator: str, left: Any, right: Any) -> Any:
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * abs(right) > MAX_BITS:
            raise OverflowError("a power in the chat template is too large")
    elif operator == "*":
        sizes = [len(side) if isinstance(side, str | bytes | list | tuple) else None for side in (left, right)]
        for size, factor in zip(sizes, (right, left), strict=True):
            if size is not None and isinstance(factor, int) and size * factor > MAX_ITEMS:
                raise OverflowError(f"the chat template repeats a text or list beyond {MAX_ITEMS:,} items")
        if sizes == [None, None] and _num_bits(left) + _num_bits(right) > MAX_BITS:
            raise OverflowError("a product in the chat template is too large")
    return _call_operation(self, context, operator, left, right)


def _num_bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
