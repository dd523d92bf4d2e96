"""Which commands of the documents are carried out here, and what accounts for each
of the others.
"""

from __future__ import annotations

import re
from typing import cast

import typer

from documents.commands import leaves
from rollcast.cli.main import app
from tests.documents.documented import LOG, NEEDS, PAGES, Documented, commands
from tests.documents.elsewhere import carried_out_by, is_measured

UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Of the click that typer brings: what is missing, what is unknown, and what is wrong."""
COMMANDS = dict(leaves(typer.main.get_command(app), "rollcast"))
DOCUMENTED = [item for page in PAGES if page.name not in LOG for item in commands(page)]
GROUPS = {" ".join(name.split()[:count]) for name in COMMANDS for count in (1, 2)}
PLACEHOLDERS = ("...", "NAME", "COMMAND", "FILE")
STARTERS = ("rollcast generator", "rollcast trainer", "rollcast forecaster")
"""They hand their options to another program."""


def name_of(words: tuple[str, ...]) -> str | None:
    """The command of `rollcast` that these words call."""
    return next((name for count in (3, 2) if (name := " ".join(words[:count])) in COMMANDS), None)


def is_whole(words: tuple[str, ...]) -> bool:
    """Whether the command line takes it as it is."""
    name = name_of(words)
    if name is None or "--help" in words or any(word in PLACEHOLDERS for word in words):
        return False
    if name in STARTERS:
        return True
    try:
        COMMANDS[name].make_context(name, list(words[len(name.split()) :]))
    except UsageError:
        return False
    return True


def is_done_here(command: Documented) -> bool:
    return command.words[0] == "rollcast" and is_whole(command.words)


DONE_HERE = {
    command.words: command
    for command in DOCUMENTED
    if is_done_here(command) and not command.needs and carried_out_by(command) is None
}
"""Each once, wherever it stands."""
MARKED = {command.words: command.needs for command in DOCUMENTED if command.needs}
"""What running text may speak of, where the mark stands once."""


def is_accounted_for(command: Documented) -> bool:
    if command.words in DONE_HERE or carried_out_by(command) is not None or is_measured(command):
        return True
    needs = command.needs or (MARKED.get(command.words, "") if command.in_prose else "")
    if needs:
        return set(re.split(r", | and ", needs)) <= set(NEEDS)
    return (
        command.words[0] == "rollcast" and command.in_prose and names_what_there_is(command.words)
    )


def names_what_there_is(words: tuple[str, ...]) -> bool:
    """A command that is spoken of, with options that it has."""
    name = name_of(words)
    if name is None:
        return " ".join(words[:2]) in GROUPS or words[1] in ("--help", "--version", "COMMAND")
    known = {
        option for item in COMMANDS[name].params for option in (*item.opts, *item.secondary_opts)
    } | {"--help"}
    return {word for word in words if word.startswith("--")} <= known
