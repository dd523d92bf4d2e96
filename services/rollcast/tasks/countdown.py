"""Countdown: reach a target with some numbers, each used once, by + - * / and brackets.

The answer is the last line after the think block, or the content of the last \\boxed{}; `= target`
behind it may stay.
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError
from rollcast.tasks.math_boxes import final_boxes
from rollcast.tasks.math_notation import plain_signs

if TYPE_CHECKING:  # fork servers of verifiers need no settings
    from rollcast.config.datasets import CountdownDataset

TEMPLATE = (
    "Using each of the numbers {numbers} exactly once, and only + - * / and brackets, write an "
    "expression that equals {target}. Give the expression alone on the last line."
)
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_SYNTAX: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_SIGNS = {
    "\\times": "*",
    "\\cdot": "*",
    "\\div": "/",
    "\\left": "",
    "\\right": "",
    "[": "(",
    "]": ")",
}
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([0-9+* -]{1,80})\}\s*\{([0-9+* -]{1,80})\}")
_EXPRESSION = re.compile(r"[0-9+*/() -]{1,200}")
"""Six numbers, five signs and brackets need far fewer characters."""


def distinct_puzzles(dataset: CountdownDataset, count: int) -> list[tuple[tuple[int, ...], int]]:
    """`count` different (numbers, target), the same ones for the same seed; each has a solution.

    Raises UserError if the settings do not give that many.
    """
    rng = random.Random(f"countdown/{dataset.seed}")
    puzzles: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    fruitless = 0
    # Draws in a row without a new puzzle: nearly all were drawn already
    while len(puzzles) < count and fruitless < 5_000:
        fruitless += 1
        numbers = tuple(
            rng.randint(1, dataset.max_number) for _ in range(rng.randint(*dataset.numbers))
        )
        target = _combine_randomly(rng, numbers)
        if target.denominator == 1 and 1 <= target <= dataset.max_target:
            puzzle = (tuple(sorted(numbers)), int(target))
            if puzzle not in puzzles:
                puzzles[puzzle] = numbers
                fruitless = 0
    if len(puzzles) < count:
        raise UserError(
            f"tasks.dataset.size = {dataset.size}: only {len(puzzles)} different countdown puzzles "
            "with evaluation "
            f"included were found, {count} are needed; lower size or raise max_number or max_target"
        )
    return [(numbers, target) for (_, target), numbers in puzzles.items()]


def _combine_randomly(rng: random.Random, numbers: tuple[int, ...]) -> Fraction:
    """The value of a random expression of all the numbers."""
    values = [Fraction(number) for number in numbers]
    while len(values) > 1:
        left_operand = values.pop(rng.randrange(len(values)))
        right_operand = values.pop(rng.randrange(len(values)))
        sign = rng.choice("+-*/" if right_operand else "+-*")
        values.append(_OPERATIONS[sign](left_operand, right_operand))
    return values[0]


def prompt_text(numbers: tuple[int, ...], target: int) -> str:
    return TEMPLATE.format(numbers=", ".join(map(str, numbers)), target=target)


def countdown(answer: str, reference: Any) -> float:
    """1 if the expression uses exactly the given numbers and its exact value is the target.

    `answer`: the text after the think block; `reference`: {"numbers": [...], "target": n}.
    """
    expression = _expression(answer)
    if expression is None:
        return 0.0
    used: Counter[int] = Counter()
    value = _value(expression, used)
    return float(value == reference["target"] and used == Counter(reference["numbers"]))


def _expression(answer: str) -> ast.expr | None:
    boxes = final_boxes(answer)
    lines = (boxes.last if boxes else answer).strip().splitlines()
    # Characters of the answer's line that are looked at
    line = plain_signs(lines[-1][:400]) if lines else ""
    for sign, plain in _SIGNS.items():
        line = line.replace(sign, plain)
    line = _FRACTION.sub(r"((\1)/(\2))", line).partition("=")[0].strip(" $`*.")
    if not _EXPRESSION.fullmatch(line):
        return None
    try:
        return ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _value(node: ast.expr, used: Counter[int]) -> Fraction | None:
    """The exact value; None if it is not such an expression or divides by zero.

    Counts the numbers in `used`.
    """
    match node:
        case ast.Constant(value=int(number)) if type(number) is int:
            used[number] += 1
            return Fraction(number)
        case ast.BinOp(left=left, op=sign_node, right=right):
            a = _value(left, used)
            b = _value(right, used)
            if a is None or b is None:
                return None
            sign = _SYNTAX.get(type(sign_node), "")
            if sign in _OPERATIONS and (b or sign != "/"):
                value: Fraction = _OPERATIONS[sign](a, b)
                return value
    return None
