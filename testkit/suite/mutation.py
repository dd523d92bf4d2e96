"""Small changes of a source file, each of which a test should notice: an operator, a constant, a
branch.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*",
    ast.Mod: "+", ast.Pow: "*", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is", ast.In: "not in",
    ast.NotIn: "in", ast.And: "or", ast.Or: "and"}  # fmt: skip
"""Operator -> what takes its place."""
GENERATED = "_pb2"


@dataclass(frozen=True)
class Mutant:
    """One line of one file as it was and as it is changed."""

    file: str
    line: int
    before: str
    after: str

    def apply(self, root: Path) -> None:
        """Write the changed line. Raises ValueError if the file does not have the line."""
        path = root / self.file
        lines = path.read_text().splitlines(keepends=True)
        lines[self.index_in(lines)] = f"{self.after}\n"
        path.write_text("".join(lines))

    def index_in(self, lines: Sequence[str]) -> int:
        """Index of the line in another version of its file: of equal lines the one nearest to the
        drawn number. Raises ValueError without such a line.
        """
        matching_indices = [
            index for index, line in enumerate(lines) if line.rstrip("\n") == self.before
        ]
        if not matching_indices:
            raise ValueError(
                f"{self.file} has no line {self.before.strip()!r}, which was drawn at {self.line}"
            )
        return min(matching_indices, key=lambda index: abs(index + 1 - self.line))

    def is_in(self, root: Path) -> bool:
        """Whether another version of the repository has the file and the line."""
        path = root / self.file
        return path.exists() and self.before in path.read_text().splitlines()


def draw_mutants(
    root: Path, weights: Mapping[str, float], number: int, seed: int, other_root: Path | None = None
) -> list[Mutant]:
    """Draw mutants: a room of services/rollcast by its weight, a file of it by its lines, a mutant
    of the file. other: a checkout of another commit, which has the lines of all mutants too.
    """
    generator = random.Random(seed)
    package = root / "services" / "rollcast"
    rooms = sorted(room for room in weights if (package / room).is_dir())
    drawn: list[Mutant] = []
    while len(drawn) < number:
        (room,) = generator.choices(rooms, [weights[room] for room in rooms])
        files = sorted(
            file for file in (package / room).rglob("*.py") if GENERATED not in file.name
        )
        (file,) = generator.choices(files, [len(file.read_text().splitlines()) for file in files])
        mutants = mutants_of_file(file, root)
        if (
            mutants
            and (mutant := generator.choice(mutants)) not in drawn
            and (other_root is None or mutant.is_in(other_root))
        ):
            drawn.append(mutant)
    return drawn


def mutants_of_file(file: Path, root: Path) -> list[Mutant]:
    """Every mutant of the functions of a file that changes one line only and still compiles."""
    text = file.read_text()
    lines = text.splitlines()
    mutants = []
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    for node in (
        node
        for function in functions
        for statement in function.body
        for node in ast.walk(statement)
    ):
        for line, start, end, new in _replacements(node, lines):
            original_line = lines[line - 1]
            mutated_line = original_line[:start] + new + original_line[end:]
            if mutated_line != original_line and _compiles(
                [*lines[: line - 1], mutated_line, *lines[line:]]
            ):
                mutants.append(
                    Mutant(str(file.relative_to(root)), line, original_line, mutated_line)
                )
    return sorted(set(mutants), key=lambda mutant: (mutant.line, mutant.after))


def _replacements(node: ast.AST, lines: Sequence[str]) -> list[tuple[int, int, int, str]]:
    """Line, first and last column, and the new text, of each change of a node."""
    if (
        isinstance(node, ast.Constant)
        and node.lineno == node.end_lineno
        and node.end_col_offset is not None
    ):
        new = _other_constant(node.value)
        return [] if new is None else [(node.lineno, node.col_offset, node.end_col_offset, new)]
    if isinstance(node, ast.BinOp):
        return _between(node.left, node.right, [node.op], lines)
    if isinstance(node, ast.BoolOp):
        return _between(node.values[0], node.values[1], [node.op], lines)
    if isinstance(node, ast.Compare):
        return _between(node.left, node.comparators[0], node.ops[:1], lines)
    if isinstance(node, ast.If | ast.While) and node.test.lineno == node.test.end_lineno:
        test = node.test
        assert test.end_col_offset is not None
        source = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
        return [(test.lineno, test.col_offset, test.end_col_offset, f"not ({source})")]
    return []


def _between(
    left_operand: ast.expr,
    right_operand: ast.expr,
    operators: Sequence[ast.AST],
    lines: Sequence[str],
) -> list[tuple[int, int, int, str]]:
    """The operator between two operands of one line."""
    new = OPERATORS.get(type(operators[0]))
    if (
        new is None
        or left_operand.end_lineno != right_operand.lineno
        or left_operand.end_col_offset is None
    ):
        return []
    between = lines[right_operand.lineno - 1][
        left_operand.end_col_offset : right_operand.col_offset
    ]
    if "(" in between or ")" in between:
        return []
    return [
        (right_operand.lineno, left_operand.end_col_offset, right_operand.col_offset, f" {new} ")
    ]


def _other_constant(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int | float):
        return repr(value + 1)
    return None


def _compiles(lines: Sequence[str]) -> bool:
    try:
        compile("\n".join(lines), "mutant", "exec")
    except SyntaxError:
        return False
    return True
