"""What `make test` installs on a Debian machine: it says what and why first, and DEBIAN=0 keeps it
from it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "requirements" / "debian.sh"
NEEDED = ("redis-server", "prometheus", "chromium", "zsh", "podman", "runc", "busybox")
PACKAGES = (*NEEDED[:-1], "busybox-static")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only folder on PATH: a root's machine, an apt-get that writes down what it is told, and
    no other program.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    write(folder / "id", "echo 0")
    write(folder / "apt-get", f'echo "apt-get $*"  >> {tmp_path}/asked')
    return folder


def write(program: Path, line: str) -> None:
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


def run(programs: Path, **environment: str) -> tuple[str, str, list[str]]:
    """What it says on stdout and stderr, and how apt-get was called."""
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)],
        env={"PATH": str(programs)} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    asked = programs.parent / "asked"
    return done.stdout, done.stderr, asked.read_text().splitlines() if asked.exists() else []


def test_it_says_what_it_installs_and_why_and_installs_that(programs: Path) -> None:
    said, complaint, asked = run(programs)
    assert [line.split()[0] for line in said.splitlines()[1:]] == [f"{name}:" for name in NEEDED]
    assert all(len(line.split()) > 4 for line in said.splitlines()[1:]), "and what for"
    assert "DEBIAN=0" in said
    assert complaint == ""
    assert asked[1].split()[-len(PACKAGES) :] == list(PACKAGES)


def test_it_asks_for_what_is_missing_alone(programs: Path) -> None:
    for name in set(NEEDED) - {"prometheus"}:
        write(programs / name, "")
    said, _, asked = run(programs)
    assert "chromium" not in said
    assert asked[1].endswith("--no-install-recommends prometheus")
    write(programs / "prometheus", "")
    assert run(programs)[0] == ""


def test_debian_0_installs_nothing_and_names_what_is_missing(programs: Path) -> None:
    said, complaint, asked = run(programs, DEBIAN="0")
    assert asked == []
    assert said == ""
    assert all(f"{name}: " in complaint for name in NEEDED)
    assert "skipped" in complaint


@pytest.mark.parametrize(
    "program", [("id", "echo 1000"), ("apt-get", "exit 100")], ids=["no root", "no index"]
)
def test_where_it_cannot_install_it_says_so_and_goes_on(
    programs: Path, program: tuple[str, str]
) -> None:
    write(programs / program[0], program[1])
    _, complaint, _ = run(programs)
    assert all(f"{name}: " in complaint for name in NEEDED)
