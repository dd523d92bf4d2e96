"""Every command with its options, as `--help` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import typer

from documents.tables import table
from rollcast.cli.main import SERVICE_EXAMPLES, app

INTRODUCTION = """# Commands

`rollcast --help` lists them, and `rollcast COMMAND --help` prints the same as this page. A mistake
is one sentence and exit code 2. A fault that may pass by itself, such as a missing server, ends
with 1. A run that Ctrl-C ended ends with 130.

"""


def commands_page() -> str:
    root = typer.main.get_command(app)
    return (
        INTRODUCTION
        + "".join(_section(name, command) for name, command in leaves(root, "rollcast")).rstrip()
        + "\n"
    )


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Commands that do something, by their whole name."""
    parts = getattr(command, "commands", None)
    if parts is None:
        yield name, command
    else:
        for part, inner in parts.items():
            yield from leaves(inner, f"{name} {part}")


def _section(name: str, command: Any) -> str:
    text, _, examples = cleandoc(command.help or "").partition("\b\n")
    starter = name.removeprefix("rollcast ")
    examples = SERVICE_EXAMPLES.get(starter, "") or examples
    said = f"## {name}\n\n{text.strip()}\n\n"
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [
        item for item in command.params if item.param_type_name == "option" and not item.hidden
    ]
    said += table(
        ("argument", "meaning"),
        [(f"`{_of(item)}`", getattr(item, "help", "") or "") for item in arguments],
    )
    said += table(
        ("option", "effect"), [(f"`{', '.join(item.opts)}`", item.help or "") for item in options]
    )
    if examples.strip():
        block = "".join(f"    {line}\n" for line in examples.strip().splitlines())
        said += f"{block}\n"
    return said


def _of(argument: Any) -> str:
    return str(argument.name).upper() + ("..." if argument.nargs != 1 else "")
