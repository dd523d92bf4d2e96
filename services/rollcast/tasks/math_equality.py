"""Whether two parsed formulas are equal: math-verify's comparison, without its rounding to six
decimals.

decimal, decimal        equal values: 0.50 = 0.5, 0.00000012 is not 0.00000034
decimal, exact form     the form rounded to the decimal's digits, at least six significant ones:
                        0.333333 = 1/3, 0.5+0.866025i = e^{i\\pi/3} (each part by itself)
percent, number         50% = 0.5; 12.5% = 12.5 too, as a number from 1 on is no share
tuple, set              never equal; a list without brackets equals either, a tuple in its order

Decimals become exact numbers before math-verify compares them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

import math_verify
from sympy import (
    And,
    FiniteSet,
    Float,
    I,
    Interval,
    MatrixBase,
    Mul,
    Or,
    Pow,
    Rational,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    Union,
)
from sympy.core.relational import Equality, Relational

MAX_DECIMAL_EXPONENT = 10_000
"""A decimal beyond it, or with a larger power, is not written out as a fraction."""
_DECIMAL_TEXT = re.compile(r"[-+]?\d*\.(\d+)\s*(?:\\?%)?")
_PERCENT_PLACES = 2

_NAME_SEPARATOR = re.compile(r"=|\\in(?![A-Za-z])")
"""Ends a name before a set: `S = `, `x \\in`."""

Kind = Literal["list", "set", "tuple"]


def are_equal(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """Both as math-verify parses them: expressions, then the text that was read."""
    pairs = [
        (gold_part, answer_part)
        for gold_part in gold
        for answer_part in answer
        if isinstance(gold_part, str) == isinstance(answer_part, str)
    ]
    gold_text = _text(gold)
    answer_text = _text(answer)
    for gold_value, answer_value in pairs:
        if _are_one(gold_value, answer_value, gold_text, answer_text):
            return True
        holds_i = not isinstance(gold_value, str) and (_has_i(gold_value) or _has_i(answer_value))
        if holds_i and _are_one(
            _with_unit(gold_value), _with_unit(answer_value), gold_text, answer_text
        ):
            return True
    return False


def are_equal_shares(gold: Sequence[Any], answer: Sequence[Any], *, is_gold_percent: bool) -> bool:
    """One of them alone has a per cent sign; its values are those before the sign."""
    percent = gold if is_gold_percent else answer
    numbers = [value for value in percent if getattr(value, "is_number", False)]
    if any(abs(number.evalf()) >= 1 for number in numbers if number.is_real) and are_equal(
        gold, answer
    ):
        return True
    shares = [
        f"{value}\\%"
        if isinstance(value, str)
        else Mul(value, UnevaluatedExpr(Rational(1, 100)), evaluate=False)
        for value in percent
        if isinstance(value, str) or value in numbers
    ]
    return are_equal(shares, answer) if is_gold_percent else are_equal(gold, shares)


def _are_one(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    compared: tuple[Any, Any] | None = (gold, answer)
    if not isinstance(gold, str):
        compared = _comparable(gold, answer, gold_text, answer_text)
    # Digits of a numeric comparison. With math-verify's 15 a difference below 1e-15 does not count.
    return compared is not None and bool(
        math_verify.verify([compared[0]], [compared[1]], numeric_precision=50, timeout_seconds=None)
    )


def _has_i(expression: Any) -> bool:
    return any(symbol.name == "i" for symbol in getattr(expression, "free_symbols", ()))


def _with_unit(expression: Any) -> Any:
    """With the letter i as the imaginary unit, and all others alike: near an i math-verify takes
    them as complex.
    """
    if (
        isinstance(expression, Equality)
        and isinstance(expression.lhs, Symbol)
        and expression.lhs.name == "i"
    ):
        return expression

    def change(leaf: Any) -> Any:
        symbols = getattr(leaf, "free_symbols", ())
        units = {
            symbol: I if symbol.name == "i" else Symbol(symbol.name, real=True)
            for symbol in symbols
        }
        return leaf.xreplace(units) if units else leaf

    return _rebuild_formula(expression, change)


def _text(parsed: Sequence[Any]) -> str:
    return next(
        (parsed_element for parsed_element in reversed(parsed) if isinstance(parsed_element, str)),
        "",
    )


def _comparable(gold: Any, answer: Any, gold_text: str, answer_text: str) -> tuple[Any, Any] | None:
    """Both without decimals, and a list as a tuple if the other is one.

    None = they are of different kinds.
    """
    values = [_value(gold), _value(answer)]
    kinds = [_kind(values[0], gold_text), _kind(values[1], answer_text)]
    if _clash(values[0], kinds[0], values[1], kinds[1]):
        return None
    if sorted(map(str, kinds)) == ["list", "tuple"]:
        gold = Tuple(*_members(values[0]))
        answer = Tuple(*_members(values[1]))
    decimals = [_decimals(gold, gold_text), _decimals(answer, answer_text)]
    if not any(decimals) and not _has_floats(gold) and not _has_floats(answer):
        return gold, answer
    forms = [_exact_forms(gold, decimals[0]), _exact_forms(answer, decimals[1])]
    return _without_decimals(gold, decimals[0], forms[1]), _without_decimals(
        answer, decimals[1], forms[0]
    )


def _value(expression: Any) -> Any:
    """The right side of `S = ..`, which math-verify compares too."""
    return expression.rhs if isinstance(expression, Equality) else expression


def _kind(expression: Any, text: str = r"\{\}") -> Kind | None:
    """`text`: of the whole formula; without braces around it several members are a list."""
    if isinstance(expression, FiniteSet):
        return "set" if _is_in_braces(text) else "list"
    if isinstance(expression, Tuple) or (isinstance(expression, Interval) and expression.is_open):
        return "tuple"
    return None


def _is_in_braces(text: str) -> bool:
    """Whether the first brace closes at the end: `\\{1\\},\\{2\\}` is a list of two sets."""
    text = _NAME_SEPARATOR.split(text)[-1].strip()
    if not text.startswith(r"\{"):
        return False
    depth = 0
    for brace in re.finditer(r"\\([{}])", text):
        depth += 1 if brace[1] == "{" else -1
        if depth == 0:
            return brace.end() == len(text)
    return False


def _members(expression: Any) -> list[Any]:
    """Members in their written order, if that is known."""
    if isinstance(expression, Interval):
        return [expression.start, expression.end]
    return list(getattr(expression, "_unsorted_args", expression.args))


def _clash(gold: Any, gold_kind: Kind | None, answer: Any, answer_kind: Kind | None) -> bool:
    """Whether a set is compared with a tuple, here or in a member of both."""
    if gold_kind is None or answer_kind is None:
        return False
    if {gold_kind, answer_kind} == {"set", "tuple"}:
        return True
    pairs = [_members(gold), _members(answer)]
    if len(pairs[0]) != len(pairs[1]):
        return False
    if "tuple" not in (gold_kind, answer_kind):  # in any order
        return sorted(map(_signature, pairs[0])) != sorted(map(_signature, pairs[1]))
    return any(
        _clash(gold_member, _kind(gold_member), answer_member, _kind(answer_member))
        for gold_member, answer_member in zip(*pairs, strict=True)
    )


def _signature(expression: Any) -> str:
    """The brackets of a member alone."""
    kind = _kind(expression)
    return "" if kind is None else f"{kind}({','.join(map(_signature, _members(expression)))})"


def _parts(expression: Any) -> tuple[Any, ...]:
    """The formulas inside: members, ends, sides, cells.

    Empty for a formula that is compared as one.
    """
    if isinstance(expression, FiniteSet | Tuple | And):
        return tuple(_members(expression))
    if isinstance(expression, Interval | Union | Or | Relational):
        return tuple(expression.args)
    return tuple(expression.flat()) if isinstance(expression, MatrixBase) else ()


def _rebuild_formula(expression: Any, change: Callable[[Any], Any]) -> Any:
    """With `change` made to each formula that holds no other."""
    parts = [_rebuild_formula(subformula, change) for subformula in _parts(expression)]
    if not parts:
        return change(expression)
    if isinstance(expression, MatrixBase):
        return type(expression)(*expression.shape, parts)
    if isinstance(expression, Interval):
        return Interval(parts[0], parts[1], expression.left_open, expression.right_open)
    if isinstance(expression, Relational):
        return expression.func(*parts, evaluate=False)
    return expression.func(*parts)


def _leaves(expression: Any) -> Iterator[Any]:
    parts = _parts(expression)
    if not parts:
        yield expression
    for subformula in parts:
        yield from _leaves(subformula)


def _has_floats(expression: Any) -> bool:
    return any(hasattr(leaf, "atoms") and leaf.atoms(Float) for leaf in _leaves(expression))


def _decimal(leaf: Any) -> Decimal | None:
    """The value of a leaf that is one decimal, its sign and its per cent included."""
    if isinstance(leaf, Float):
        value = Decimal(str(leaf))
        return value.normalize() if value.is_finite() else None
    if not isinstance(leaf, Mul) or len(leaf.args) != 2:
        return None
    signs = [sign for sign in leaf.args if sign == -1]
    percents = [percent for percent in leaf.args if percent == UnevaluatedExpr(Rational(1, 100))]
    rest = [factor for factor in leaf.args if factor not in (*signs, *percents)]
    inner = _decimal(rest[0]) if len(rest) == 1 else None
    if inner is None:
        return None
    return -inner if signs else inner.scaleb(-_PERCENT_PLACES)


def _decimals(expression: Any, text: str) -> dict[Any, Decimal]:
    """Each leaf that is a decimal with its value, which has as many digits as are written."""
    leaf_values = {
        leaf: value for leaf in _leaves(expression) if (value := _decimal(leaf)) is not None
    }
    decimal_match = _DECIMAL_TEXT.fullmatch(text)
    if decimal_match and expression in leaf_values:  # digits 0 at the end are digits too
        places = len(decimal_match[1]) + (_PERCENT_PLACES if "%" in text else 0)
        value = leaf_values[expression]
        digits = (*value.as_tuple().digits, *[0] * max(0, places + int(value.as_tuple().exponent)))
        leaf_values[expression] = Decimal((value.as_tuple().sign, digits, -places))
    return leaf_values


def _exact_forms(expression: Any, decimals: dict[Any, Decimal]) -> list[Any]:
    """The numbers among the leaves that are no decimals, such as fractions, roots and `0.5\\pi`."""
    numbers = [
        leaf
        for leaf in _leaves(expression)
        if getattr(leaf, "is_number", False) and leaf not in decimals
    ]
    return [
        _exact(leaf) for leaf in numbers if not any(_decimal(part) for part in _complex_parts(leaf))
    ]


def _without_decimals(expression: Any, decimals: dict[Any, Decimal], forms: Sequence[Any]) -> Any:
    """Each decimal as the exact form of the other side that it is the rounding of, else as its own
    value.
    """

    def exactly(leaf: Any) -> Any:
        form = next((form for form in forms if _is_rounded(leaf, decimals.get(leaf), form)), None)
        return _exact(leaf) if form is None else form

    return _rebuild_formula(expression, exactly)


def _exact(leaf: Any) -> Any:
    """With fractions for its decimals."""
    floats = leaf.atoms(Float) if hasattr(leaf, "atoms") and not _has_large_power(leaf) else ()
    return (
        leaf.xreplace({float_atom: _fraction(float_atom) for float_atom in floats})
        if floats
        else leaf
    )


def _has_large_power(leaf: Any) -> bool:
    """Whether it would have too many digits as an exact number."""
    return any(
        power.exp.is_Integer and abs(power.exp) > MAX_DECIMAL_EXPONENT for power in leaf.atoms(Pow)
    )


def _fraction(value: Any) -> Any:
    decimal = Decimal(str(value))
    return Rational(str(decimal)) if abs(decimal.adjusted()) <= MAX_DECIMAL_EXPONENT else value


def _complex_parts(leaf: Any) -> tuple[Any, ...]:
    """Real and imaginary part of `a+bi` and `bi`; empty for a formula that holds i in another way,
    or not.
    """
    if not hasattr(leaf, "atoms") or I not in leaf.atoms():
        return ()
    real, rest = leaf.as_independent(I, as_Add=True)
    imaginary = rest / I
    return () if I in imaginary.atoms() else (real, imaginary)


def _is_rounded(leaf: Any, decimal: Decimal | None, form: Any) -> bool:
    """Whether the leaf is a decimal, or a complex number with one in a part or in both, that is the
    form rounded.
    """
    if decimal is not None:
        return _is_rounding(decimal, form)
    parts = _complex_parts(leaf) if _has_floats(leaf) else ()
    if not parts:
        return False
    # Digits of a numeric comparison, as above
    exact_parts = form.evalf(50).as_real_imag()
    return all(_is_same_part(*pair) for pair in zip(parts, exact_parts, strict=True))


def _is_same_part(written_expression: Any, exact: Any) -> bool:
    decimal = _decimal(written_expression)
    if decimal is not None and _is_rounding(decimal, exact):
        return True
    return bool((_exact(written_expression) - exact).evalf(50, chop=True) == 0)


def _is_rounding(decimal: Decimal, form: Any) -> bool:
    """Whether the decimal is the form rounded to its own digits, and these are enough."""
    # A decimal that stands for an exact form has at least these digits: 0.333333 does
    if not decimal or len(decimal.as_tuple().digits) < 6:
        return False
    half = Rational(1, 2) * Rational(10) ** int(decimal.as_tuple().exponent)
    difference = abs(form - Rational(str(decimal))).evalf()
    return bool(difference.is_comparable and difference <= half)
