"""Questions to the Python of a verifiers environment that need no rollout."""

import json
import subprocess
from pathlib import Path
from typing import Any

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.verifiers import adapter

LOOK_SECONDS = 60.0
"""Deadline for a Python to start and look for two packages, on a busy machine."""


def why_missing(settings: VerifiersEnvironment) -> str | None:
    """Why the taskset cannot run there, to be read after the interpreter's path; None = its packages are there."""
    asked = json.dumps({"taskset": settings.taskset})
    try:
        done = subprocess.run(  # noqa: S603  # the user's own interpreter
            command(settings, "look"), input=asked, capture_output=True, text=True, timeout=LOOK_SECONDS, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except OSError as error:
        return f"cannot be started ({error.strerror}); give the python of a virtual environment"
    except subprocess.TimeoutExpired:
        return f"does not answer within {LOOK_SECONDS:g} s; give the python of a virtual environment"
    except ValueError:
        return "is no Python of 3.11 or later; give the python of a virtual environment"
    return found.get("failed")


def command(settings: VerifiersEnvironment, what: str) -> list[str]:
    """The adapter in the interpreter of the settings."""
    return [str(settings.interpreter), "-I", str(Path(adapter.__file__).resolve()), what]
