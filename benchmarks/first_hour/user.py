"""A user before a terminal of 80 columns and 24 lines: the input, the screen, and the time."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from testkit.terminal import Terminal

ROLLCAST = Path(sys.executable).with_name("rollcast")
PATIENCE = 600.0


class User:
    """One user's folder, and the screens seen there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times: list[dict[str, Any]] = []
        self.pages: list[str] = []

    def open(self, command: str) -> Terminal:
        path = f"{ROLLCAST.parent}{os.pathsep}{os.environ['PATH']}"
        return Terminal(shlex.split(command), self.folder, {"PATH": path, "HF_HUB_OFFLINE": "1"})

    def tell(self, text: str) -> None:
        """What the user does between two commands."""
        self.pages.append(f"{text}\n")

    def note(self, command: str, terminal: Terminal, what: str, **more: Any) -> None:
        """`what`: the moment at which the screen is taken down."""
        shown, seconds = self.plain(terminal.screen()), terminal.seconds()
        self.times.append(
            {"command": self.plain(command), "moment": what, "seconds": seconds, **more}
        )
        self.pages.append(
            f"    $ {self.plain(command)}\n\n{what}, after {seconds} s:\n\n{indented(shown)}\n"
        )

    def ask(self, command: str, status: int = 0) -> None:
        """A command that answers and ends."""
        with self.open(command) as terminal:
            ended = terminal.end(PATIENCE)
            assert ended == status, terminal.full_output()
            said, seconds = self.plain(terminal.full_output()), terminal.seconds()
            self.times.append(
                {"command": self.plain(command), "moment": "answered", "seconds": seconds}
            )
            self.pages.append(
                f"    $ {self.plain(command)}\n\nanswered after {seconds} s:\n\n{indented(said)}\n"
            )

    def plain(self, text: str) -> str:
        return text.replace(f"{ROLLCAST}", "rollcast").replace(f"{self.folder}", "~/first-hour")


def indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
