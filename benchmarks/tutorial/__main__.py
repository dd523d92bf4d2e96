"""The tutorial, from its page: everything behind the installation, each command exactly as printed,
with its time.

    python -m benchmarks.tutorial

In an empty folder, so that the tiny model is trained as on a fresh machine. Writes
results/tutorial.json; the page says the sum, and a test holds it to the file.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks.first_hour.user import User
from testkit.record import write_result

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def follow(user: User) -> None:
    """Its files, then its commands; `make setup` is left out."""
    page = PAGE.read_text()
    for title, text in re.findall(
        r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    ):
        (user.folder / title).write_text(text)
    (user.folder / "models").mkdir()
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for command in block.splitlines():
            if command.startswith(("rollcast ", "python ")):
                user.ask(command)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tutorial-") as name:
        user = User(Path(name).resolve())
        try:
            follow(user)
        finally:
            print("\n".join(user.pages))
    seconds = round(sum(one["seconds"] for one in user.times), 1)
    print(write_result("tutorial", {"seconds": seconds, "commands": user.times}))


if __name__ == "__main__":
    main()
