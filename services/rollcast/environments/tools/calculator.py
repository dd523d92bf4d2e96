"""The tool `calculator`: one arithmetic expression.

It evaluates arithmetic only, and numbers stay bounded.
"""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

MAX_RESULT_BITS = 4_096
"""Largest whole number of any step: about 1,200 digits, so that no power or factorial takes
noticeable time."""
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_OF_MATH = (
    "sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "floor",
    "ceil", "gcd", "lcm",
)  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(math, name) for name in _OF_MATH}
_FUNCTIONS.update({"abs": abs, "min": min, "max": max, "round": round})
_CONSTANTS = {"pi": math.pi, "e": math.e}
Number = int | float


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers, + - * / // %, powers as ** or ^, parentheses, and functions such as
            sqrt(2) or max(3, 4).

    Returns:
        The result.
    """
    # Longest expression. Models write less than a hundred.
    max_expression_characters = 1_000
    if len(expression) > max_expression_characters:
        return f"Error: the expression has more than {max_expression_characters} characters"
    python_expression = (
        expression.replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-").strip()
    )
    try:
        return _format_number(_evaluate(ast.parse(python_expression, mode="eval").body))
    except SyntaxError as error:
        return f"Error: this is not an arithmetic expression: {error.msg}"
    except ZeroDivisionError:
        return "Error: division by zero"
    except (ValueError, TypeError, OverflowError) as error:
        return f"Error: {error}"
    except (RecursionError, MemoryError):
        return "Error: the expression is nested too deeply"


def _evaluate(node: ast.expr) -> Number:
    """The value of a node. Raises ValueError if it is not arithmetic."""
    value: Number
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            pass
        case ast.Name(id=name) if name in _CONSTANTS:
            value = _CONSTANTS[name]
        case ast.UnaryOp() if type(node.op) in _UNARY:
            value = _UNARY[type(node.op)](_evaluate(node.operand))
        case ast.BinOp(op=ast.Pow()):
            value = _power(_evaluate(node.left), _evaluate(node.right))
        case ast.BinOp() if type(node.op) in _BINARY:
            value = _BINARY[type(node.op)](_evaluate(node.left), _evaluate(node.right))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            value = _FUNCTIONS[name](*map(_evaluate, node.args))
        case _:
            raise ValueError(f"{ast.unparse(node)} is not arithmetic")
    return _check_bounds(value)


def _power(base: Number, exponent: Number) -> Number:
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and abs(exponent) * base.bit_length() > MAX_RESULT_BITS
    ):
        raise ValueError("the power is too large")
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError("the root of a negative number is not real")
    return value


def _check_bounds(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_RESULT_BITS:
        raise ValueError("the number is too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("the result is not finite")
    return value


def _format_number(value: Number) -> str:
    """A whole number in all its digits; others rounded."""
    if isinstance(value, float) and not value.is_integer():
        # Significant digits of a result that is not whole: fewer than a float has, so that 0.1 +
        # 0.2 is 0.3.
        shown_digits = 12
        return f"{value:.{shown_digits}g}"
    return str(int(value))
