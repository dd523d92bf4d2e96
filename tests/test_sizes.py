"""What is small enough to be read at once: files of services/ hold at most 400 lines, functions at most 60."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SERVICES = Path(__file__).parents[1] / "services"
FILE_LINES = 400
FUNCTION_LINES = 60
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> list[Path]:
    """Every module of services/ that somebody wrote."""
    return [path for path in sorted(SERVICES.rglob("*.py")) if "_pb2" not in path.name]


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and lines of each function that is too long."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and (length := own_lines(node)) > FUNCTION_LINES:
            yield node.name, length


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its lines, without the functions defined inside it: each of those is counted by itself.

    Of a command of the command line the body alone: its signature and docstring are a declared table, of the options
    and their help.
    """
    inner = [node for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function]
    outermost = [node for node in inner if not any(other is not node and node in ast.walk(other) for other in inner)]
    length = _lines(function) - sum(map(_lines, outermost))
    if "typer." in ast.unparse(function.args):
        first = function.body[1] if ast.get_docstring(function) is not None else function.body[0]
        length -= first.lineno - function.lineno
    return length


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(SERVICES)): len(path.read_text().splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > FILE_LINES} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    found = {
        f"{path.relative_to(SERVICES)}:{name}": length
        for path in sources()
        for name, length in long_functions(ast.parse(path.read_text()))
    }
    assert found == {}


def test_a_function_is_measured_without_those_inside_it_and_a_command_without_its_options() -> None:
    body = "\n".join("    x = 1" for _ in range(61))
    plain = "".join(f"\n    a{number}: int," for number in range(70))
    options = plain.replace("int", "Annotated[int, typer.Option()]")
    inner = "    def inner():\n" + "\n".join("        x = 1" for _ in range(61))
    source = (
        f"def long():\n{body}\n"
        f"def outer():\n{inner}\n    return 1\n"
        f"def command({options}\n):\n    '''Help.'''\n    x = 1\n"
        f"def many({plain}\n):\n    x = 1\n"
    )
    assert [name for name, _ in long_functions(ast.parse(source))] == ["long", "many", "inner"]
