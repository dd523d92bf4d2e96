"""Wrong programs made from right ones: one operator, constant, comparison, condition or return
value changed.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from typing import Any

_OPERATORS: dict[type, Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(program: str, number: int, rng: random.Random) -> list[str]:
    """Up to `number` different ones, drawn from all that one change makes."""
    original = ast.parse(program)
    made = list(dict.fromkeys(ast.unparse(changed) for changed in _changes(original)))
    made = [mutant for mutant in made if mutant != ast.unparse(original)]
    return rng.sample(made, min(number, len(made)))


def _changes(tree: ast.Module) -> Iterator[ast.Module]:
    for position, _ in enumerate(ast.walk(tree)):
        changed = copy.deepcopy(tree)
        if _change(list(ast.walk(changed))[position]):
            yield ast.fix_missing_locations(changed)


def _change(node: ast.AST) -> bool:
    """Change this node in place; False if nothing can be changed."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        node.ops[0] = _OPERATORS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.If | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Constant(None)
    else:
        return False
    return True
