"""Functions take their own group of settings, few take the whole run file, and programs know all
their functions.
"""

from __future__ import annotations

import ast
from pathlib import Path

from lab.plainness.parsed import parsed

SERVICES = Path(__file__).parents[1] / "services" / "rollcast"
MOST_SIGNATURES = 60
"""Entry points, and functions that pass settings of many groups on. More is a sign of parts that
know too much."""


def takes_the_run_file(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotations = [
        parameter.annotation for parameter in parameters if parameter.annotation is not None
    ]
    words = [node for annotation in annotations for node in ast.walk(annotation)]
    return any(isinstance(word, ast.Name) and word.id == "RunConfig" for word in words)


def test_few_functions_take_the_whole_run_file() -> None:
    found = [
        f"{path.relative_to(SERVICES)}:{node.lineno} {node.name}"
        for path in sorted(SERVICES.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and takes_the_run_file(node)
    ]
    assert len(found) < MOST_SIGNATURES, "\n".join(found)


def starts_a_program(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":` with a call of `main`."""
    calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    return isinstance(node, ast.If) and any(
        isinstance(call, ast.Name) and call.id == "main" for call in calls
    )


def test_a_program_starts_below_everything_that_it_defines() -> None:
    """What stands below is not defined yet while it runs."""
    found = [
        f"{path.relative_to(SERVICES)}:{node.lineno}"
        for path in sorted(SERVICES.rglob("*.py"))
        for node in parsed(path).body[:-1]
        if starts_a_program(node)
    ]
    assert not found, "\n".join(found)
