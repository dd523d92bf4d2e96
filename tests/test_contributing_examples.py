"""The examples of CONTRIBUTING.md: each diff is applied to a copy of the repository, and its
commands run there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contributing_examples import EXAMPLES, ROOT

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "runs", "shared")
RUFF = "python -m ruff"


def run(folder: Path, command: str, text: str = "") -> None:
    """Run a shell command in the copy, whose packages are imported instead of those of this
    repository.
    """
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{folder / 'services'}{os.pathsep}{folder}",
        "PYTEST_ADDOPTS": "-n 0 -q -x",
    }
    done = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_can_be_applied_and_is_complete(title: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
    run(copy, "git init --quiet && git apply --recount -", text=EXAMPLES[title]["diff"])
    run(
        copy,
        (
            f"{RUFF} check --no-cache services tests && {RUFF} format --check --no-cache services "
            "tests"
        ),
    )
    run(copy, EXAMPLES[title]["commands"])
