"""How dense the code of services/ is, counted over its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.plainness.idiom import docstrings
from lab.plainness.parsed import parsed

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Module:
    """One file of services/ that is not generated."""

    name: str
    """Relative to services/."""
    text: str
    tree: ast.Module

    @property
    def num_lines(self) -> int:
        return len(self.text.splitlines())


def modules(root: Path) -> list[Module]:
    """The modules of services/ in a checkout, without generated protobuf code."""
    services = root / "services"
    paths = [path for path in sorted(services.rglob("*.py")) if "_pb2" not in path.name]
    return [
        Module(str(path.relative_to(services)), path.read_text(), parsed(path)) for path in paths
    ]


def code_lines(module: Module) -> list[str]:
    """Lines that are neither blank nor a comment nor part of a docstring, without white space at
    their ends.
    """
    in_docstrings: set[int] = set()
    for docstring in docstrings(module.tree):
        in_docstrings.update(
            range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
        )
    return [
        line.strip()
        for number, line in enumerate(module.text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#") and number not in in_docstrings
    ]


def comment_lines(module: Module) -> int:
    """Lines with only a comment."""
    return sum(line.strip().startswith("#") for line in module.text.splitlines())


def count(module: Module, *kinds: type[ast.AST]) -> int:
    """Nodes of these kinds."""
    return sum(isinstance(node, kinds) for node in ast.walk(module.tree))


def numeric_constants(module: Module) -> list[str]:
    """Names in capitals that the module assigns a number or an arithmetic expression of numbers."""
    return [name for name in _numbers(module.tree.body) if _CONSTANT.fullmatch(name)]


def numeric_class_attributes(module: Module) -> list[str]:
    """Names that a class body assigns a number; those of config/ are settings and do not count."""
    if module.name.startswith("rollcast/config/"):
        return []
    return [
        name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for name in _numbers(node.body)
    ]


def _numbers(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if _is_number(value):
            yield name


def bare_words(module: Module) -> list[str]:
    """Numeric constants whose name is one word, without quantity or unit."""
    return [name for name in numeric_constants(module) if "_" not in name.strip("_")]


def tuple_assignments(module: Module) -> list[ast.Assign]:
    """Assignments of several values to several names at once, except swaps."""
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign) and _assigns_several(node)
    ]


def nested_conditionals(module: Module) -> list[ast.IfExp]:
    """Conditional expressions that are a part of another one."""
    return [
        inner
        for outer in ast.walk(module.tree)
        if isinstance(outer, ast.IfExp)
        for inner in (outer.test, outer.body, outer.orelse)
        if isinstance(inner, ast.IfExp)
    ]


def signatures_with(module: Module, type_name: str) -> list[Function]:
    """Functions with a parameter of a type."""
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, FUNCTIONS)
        and any(_mentions(parameter, type_name) for parameter in _parameters(node))
    ]


def num_parameters(module: Module, class_name: str) -> int | None:
    """Parameters with which an object of a class is made: of `__init__`, else the fields of its
    dataclass.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            for item in node.body:
                if isinstance(item, FUNCTIONS) and item.name == "__init__":
                    return len(_parameters(item)) - 1
            return sum(isinstance(item, ast.AnnAssign) for item in node.body)
    return None


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and length of each function that is too long."""
    for node in ast.walk(tree):
        if not isinstance(node, FUNCTIONS) or _num_lines(node) <= MAX_FUNCTION_LINES:
            continue
        if (length := lines_to_read(node)) > MAX_FUNCTION_LINES:
            yield node.name, length


def lines_to_read(function: Function) -> int:
    """The lines of a function as a reader counts them: with the functions defined inside it.

    Only the body of a command counts: its signature and docstring are a declared table of the
    options and their help.
    """
    skipped = 0
    if "typer." in ast.unparse(function.args):
        has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
        skipped = function.body[int(has_docstring)].lineno - function.lineno
    return _num_lines(function) - skipped


def _num_lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
    return False


def _assigns_several(node: ast.Assign) -> bool:
    if not isinstance(node.value, ast.Tuple):
        return False
    values = sorted(map(ast.unparse, node.value.elts))
    return any(
        isinstance(target, ast.Tuple) and sorted(map(ast.unparse, target.elts)) != values
        for target in node.targets
    )


def _parameters(function: Function) -> list[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _mentions(parameter: ast.arg, type_name: str) -> bool:
    if parameter.annotation is None:
        return False
    return re.search(rf"\b{type_name}\b", ast.unparse(parameter.annotation)) is not None
