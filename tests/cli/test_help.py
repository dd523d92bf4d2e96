"""Every command shows an example, and every example is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from rollcast.cli.main import SERVICE_EXAMPLES, app
from tests.cli.command import rollcast


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All but those that become a service, whose help is its own: test_commands.py."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif name not in SERVICE_EXAMPLES:
            yield (*path, name), command


COMMANDS = list(commands(get_command(app)))


def test_the_walk_finds_commands_of_every_depth() -> None:
    paths = {path for path, _ in COMMANDS}
    assert {("fit",), ("plan", "devices"), ("config", "check")} <= paths


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS]
)
def test_help_shows_examples_that_the_command_takes(path: tuple[str, ...], command: Any) -> None:
    shown = rollcast(*path, "--help")
    assert shown.returncode == 0, shown.stderr
    assert "\b" not in shown.stdout
    examples = re.findall(r"^ +(rollcast (?:.*\\\n)*.*)$", shown.stdout, re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example.replace("\\\n", " ").partition(" > ")[0], comments=True)
        assert tuple(words[1 : 1 + len(path)]) == path
        command.make_context(" ".join(path), words[1 + len(path) :])
