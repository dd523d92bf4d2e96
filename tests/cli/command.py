"""The command line inside the test's own process: what a command answers, without a start of Python
for each.

What only a process shows is asked of a process: test_output.py and test_base_install.py, `process`
here.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.main import get_command

from rollcast.cli.main import app, main
from rollcast.config.errors import UserError

COLUMNS = "100"
_COMMANDS = get_command(app)
"""Made once: to make them takes typer as long as many of them take."""


def rollcast(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command would have written in that working folder, and its exit code.

    An error that is not the user's is raised.
    """
    words = ["rollcast", *map(str, arguments)]
    out, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", words)
        patch.setenv("COLUMNS", COLUMNS)
        if folder is not None:
            patch.chdir(folder)
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def refusal(*arguments: str) -> str:
    """What the command says of a mistake of the user's, without the word "error"."""
    with pytest.raises(UserError) as refused:
        _COMMANDS.main(list(arguments), prog_name="rollcast", standalone_mode=False)
    return str(refused.value)


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": COLUMNS},
    )
