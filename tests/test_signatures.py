"""Functions take their own group of settings; few take the whole run file."""

from __future__ import annotations

import ast
from pathlib import Path

from lab.plainness.parsed import parsed

SERVICES = Path(__file__).parents[1] / "services" / "rollcast"
MOST_SIGNATURES = 60
"""Entry points, and functions that pass settings of many groups on. More is a sign of parts that know too much."""


def takes_the_run_file(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotations = [parameter.annotation for parameter in parameters if parameter.annotation is not None]
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
