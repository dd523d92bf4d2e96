"""Virtual environments of packages that cannot share ours, below .cache/: each made once, as its list or steps change.

lock (one process at a time) -> is `made` the digest? -> else: remove, uv venv, uv pip install, further steps
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".cache" / "environments"
INSTALL_SECONDS = 300.0
UV = (sys.executable, "-m", "uv")
FurtherSteps = Callable[[Path], None]
"""Given the folder of the environment; raises CalledProcessError or TimeoutExpired."""


def other_environment(name: str, further: FurtherSteps | None = None, steps: str = "") -> Path:
    """The Python of an environment with the packages of requirements/NAME.txt. Skips if they cannot be had.

    `steps`: the text of the further steps; a change of it makes the environment again.
    """
    problem = _problem(name, further, steps)
    if problem:
        pytest.skip(f"requirements/{name}.txt cannot be installed: {problem}")
    return HOME / name / "bin" / "python"


@cache
def _problem(name: str, further: FurtherSteps | None, steps: str) -> str:
    """Makes the environment. Returns why that failed, asked once a process, or nothing."""
    requirements = ROOT / "requirements" / f"{name}.txt"
    digest = hashlib.sha256(f"{sys.version}\n{requirements.read_text()}\n{steps}".encode()).hexdigest()
    home = HOME / name
    made = home / "made"
    HOME.mkdir(parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists() and made.read_text() == digest:
            return ""
        shutil.rmtree(home, ignore_errors=True)
        try:
            run_step([*UV, "venv", "--quiet", "--python", sys.executable, home])
            run_step([*UV, "pip", "install", "--quiet", "--python", home / "bin" / "python", "-r", requirements])
            if further is not None:
                further(home)
        except subprocess.CalledProcessError as error:
            return str(error.stderr).strip()[-500:]
        except subprocess.TimeoutExpired as error:
            return str(error)
        made.write_text(digest)
    return ""


def run_step(command: list[str | Path]) -> None:
    """Run a step of an install, quietly."""
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
