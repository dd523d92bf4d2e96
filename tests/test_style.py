"""Lint, format and types, checked: what a tool complains of is shown as it says it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 390.0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "arguments",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=["lint", "format", "types"],
)
def test_the_code_is_in_style(arguments: tuple[str, ...]) -> None:
    """mypy takes over a minute where it has no cache."""
    checked = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
