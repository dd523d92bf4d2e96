"""Virtual environments of packages that cannot share ours, below .cache/: each made once, as its
list or steps change.

    lock (one process at a time)
        -> is `digest_file` the digest? -> else: remove, uv venv, uv pip install, further steps
        -> `failure_file` in this very run of the tests: skip, and do not try again

The wait for the lock is bounded by the deadlines of the steps of the process that has it, and by
the test's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".cache" / "environments"
UV = (sys.executable, "-m", "uv")
THIS_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
"""All processes of one run of the tests have it."""
FurtherSteps = Callable[[Path], None]
"""Given the folder of the environment."""


def other_environment(name: str, further: FurtherSteps | None = None, steps: str = "") -> Path:
    """The Python of an environment with the packages of requirements/NAME.txt. Skips if no package
    index is reached.

    `steps`: the text of the further steps; a change of it makes the environment again.
    """
    problem = _problem(name, further, steps)
    if problem:
        pytest.skip(f"no package index is reached for requirements/{name}.txt: {problem}")
    return HOME / name / "bin" / "python"


@cache
def _problem(name: str, further: FurtherSteps | None, steps: str) -> str:
    """Makes the environment.

    Returns why its packages are not reached, or nothing. Raises if anything else fails.
    """
    requirements = ROOT / "requirements" / f"{name}.txt"
    home = HOME / name
    digest_input = f"{home}\n{sys.base_prefix}\n{sys.version}\n{requirements.read_text()}\n{steps}"
    digest = hashlib.sha256(digest_input.encode()).hexdigest()
    digest_file = home / "made"
    failure_file = HOME / f"{name}.failed"
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if digest_file.exists() and digest_file.read_text() == digest:
            return ""
        if failure_file.exists() and (reason := failure_file.read_text()).startswith(THIS_RUN):
            return reason.removeprefix(THIS_RUN)
        shutil.rmtree(home, ignore_errors=True)
        run_step([*UV, "venv", "--quiet", "--python", sys.executable, home])
        try:
            install(home, "-r", requirements)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            if (reason := _why_no_index()) == "":
                raise AssertionError(
                    f"requirements/{name}.txt cannot be installed: {error.stderr!r}"
                ) from error
            failure_file.write_text(THIS_RUN + reason)
            return reason
        if further is not None:
            further(home)
        digest_file.write_text(digest)
    return ""


def _why_no_index() -> str:
    """Why no package index is reached, or nothing."""
    command = [*UV, "pip", "compile", "--quiet", "--no-cache", "-"]
    try:
        subprocess.run(
            command, input="packaging", capture_output=True, text=True, check=True, timeout=60
        )
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()[-500:]
    except subprocess.TimeoutExpired as error:
        return str(error)
    return ""


def install(home: Path, *packages: str | Path) -> None:
    """Install packages into the environment."""
    python = home / "bin" / "python"
    run_step([*UV, "pip", "install", "--quiet", "--python", python, *packages])


def run_step(command: list[str | Path]) -> None:
    """Run a step of an install, quietly."""
    # Seconds for one step of the installation
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=300.0)
