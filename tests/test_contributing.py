"""The examples of CONTRIBUTING.md: each diff is applied to a copy of services/, and the lines behind it run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^### (?P<title>[^\n]+)\n(?:(?!^###).)*?^```diff\n(?P<diff>.*?)^```\n+^```python\n(?P<program>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = {match["title"]: match for match in BLOCK.finditer(PAGE)}


def in_copy(folder: Path, *command: str, text: str = "") -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(folder / "services")},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_that_is_named_is_there() -> None:
    named = set(re.findall(r"make ([a-z]+)\b", "\n".join(re.findall(r"^    make .*|`[^`\n]*make [^`]*`", PAGE, re.M))))
    assert named >= {"quick", "check", "test", "chart", "wire"}
    assert named <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_four_examples() -> None:
    assert list(EXAMPLES) == ["A loss", "A verifier", "A source of curves", "A part of a recipe"]


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_can_be_applied_and_does_what_it_says(title: str, tmp_path: Path) -> None:
    for folder in ("services", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    git = ("git", "-c", f"safe.directory={tmp_path}")
    in_copy(tmp_path, *git, "init", "--quiet")
    in_copy(tmp_path, *git, "apply", "--recount", "-", text=EXAMPLES[title]["diff"])
    for arguments in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *arguments, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
        in_copy(tmp_path, *ruff, "services/rollcast")
    in_copy(tmp_path, sys.executable, "-c", EXAMPLES[title]["program"])
