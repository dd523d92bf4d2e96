"""The first test that fails, in a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TIME_IS_OVER = "time is over"


def first_failure(
    files: list[str], options: list[str], tree: Path, environment: dict[str, str], seconds: float
) -> str | None:
    """The first test of these files that fails, None if all pass or are skipped,
    or TIME_IS_OVER.
    """
    report = tree / ".cache" / "mutant.txt"
    report.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider"]
    with report.open("w") as output:
        process = subprocess.Popen(
            [*command, *options, *files], cwd=tree, env=environment, stdout=output, stderr=output
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(60.0)  # seconds in which pytest ends its processes
            return TIME_IS_OVER
    for line in report.read_text().splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].split(" ", 1)[1]
    passed = process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return None if passed else f"exit code {process.returncode}"
