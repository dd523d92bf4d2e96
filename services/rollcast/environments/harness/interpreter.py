"""The Python of another virtual environment, in which an adapter runs.

Of Rollcast the adapter loads only files that import the standard library alone.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rollcast.environments.harness.program import SECRET_PREFIXES

LOOK_SECONDS = 60.0
"""Deadline for a Python to start and look for some packages, on a busy machine."""
OWN_PREFIXES = ("ROLLCAST_", "REDIS")
"""Variables of the generator that an adapter does not see. It sees others' keys: judges need
them."""


def adapter_command(interpreter: Path, adapter: ModuleType, subcommand: str) -> list[str]:
    """The adapter in the interpreter."""
    # -I, because PYTHONPATH leads to packages of this Python, not of that one.
    return [str(interpreter), "-I", str(Path(str(adapter.__file__)).resolve()), subcommand]


def why_unfit(interpreter: Path, adapter: ModuleType, request: Mapping[str, Any]) -> str | None:
    """The failure that `look` of an adapter reports, to be read after the interpreter's path; None
    = no failure.
    """
    try:
        done = subprocess.run(  # noqa: S603  # the user's own interpreter
            adapter_command(interpreter, adapter, "look"),
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=LOOK_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except OSError as error:
        return f"cannot be started ({error.strerror}); give the python of a virtual environment"
    except subprocess.TimeoutExpired:
        return (
            f"does not answer within {LOOK_SECONDS:g} s; give the python of a virtual environment"
        )
    except ValueError:
        return "is not Python 3.11 or later; give the python of a virtual environment"
    return answer.get("failed")


def adapter_variables(interpreter: Path) -> dict[str, str]:
    """The variables of an adapter in addition to a harness's: keys, and the programs of its virtual
    environment.
    """
    secret_variables = {
        name: value
        for name, value in os.environ.items()
        if name.upper().startswith(SECRET_PREFIXES) and not name.upper().startswith(OWN_PREFIXES)
    }
    folders = os.environ.get("PATH", os.defpath)
    return {
        **secret_variables,
        "PATH": f"{os.path.abspath(interpreter.parent)}{os.pathsep}{folders}",
    }
