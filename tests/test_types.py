"""Types and import contracts of everything, which `make check` looks at too. `make test` leaves
both to these tests.

Each takes one core, mypy with an empty cache for a minute. Other tests use the rest meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 900.0
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize(
    ("module", "arguments"),
    [("mypy", ["-m", "mypy"]), ("importlinter", ["-c", LINT_IMPORTS])],
    ids=["mypy", "lint-imports"],
)
def test_a_checker_of_the_whole_repository_is_content(module: str, arguments: list[str]) -> None:
    pytest.importorskip(module)
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
