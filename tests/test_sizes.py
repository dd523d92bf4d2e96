"""What is small enough to be read at once: files of services/ hold at most 400 lines, functions at
most 60.
"""

from __future__ import annotations

import ast
from pathlib import Path

from lab.plainness.density import MAX_FILE_LINES, long_functions, modules

ROOT = Path(__file__).parents[1]


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {item.name: item.num_lines for item in modules(ROOT)}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    found = {
        f"{item.name}:{name}": length
        for item in modules(ROOT)
        for name, length in long_functions(item.tree)
    }
    assert found == {}


def test_a_function_is_measured_with_those_inside_it_and_a_command_without_its_options() -> None:
    body = "\n".join("    x = 1" for _ in range(61))
    plain = "".join(f"\n    a{number}: int," for number in range(70))
    options = plain.replace("int", "Annotated[int, typer.Option()]")
    inner = "    def inner():\n" + "\n".join("        x = 1" for _ in range(50))
    outer = "\n".join("    x = 1" for _ in range(10))
    source = (
        f"def long():\n{body}\n"
        f"def outer():\n{inner}\n{outer}\n"
        f"def command({options}\n):\n    '''Help.'''\n    x = 1\n"
        f"def many({plain}\n):\n    x = 1\n"
    )
    assert [name for name, _ in long_functions(ast.parse(source))] == ["long", "outer", "many"]
