"""A Python process that finds some distributions and no others, as in an environment where only
those are installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
HIDING = """
import sys
from importlib.machinery import PathFinder
hidden = set(sys.argv.pop(1).split(","))
class Visible:
    find_distributions = PathFinder.find_distributions
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Visible
"""  # noqa: E501


@cache
def _owners() -> Mapping[str, list[str]]:
    """Distributions by top-level module.

    Made once: it reads the list of files of every distribution.
    """
    return packages_distributions()


def hidden_modules(distributions: Collection[str]) -> set[str]:
    """Top-level modules of this environment that belong to no distribution among these (canonical
    names).
    """
    return {
        module
        for module, owners in _owners().items()
        if not any(
            re.sub(r"[-_.]+", "-", owner).lower() in {*distributions, "rollcast"}
            for owner in owners
        )
    } - set(sys.stdlib_module_names)


def run_with_only(
    distributions: Collection[str],
    program: str,
    *arguments: str,
    timeout: float,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `program` where nothing can be imported but Rollcast, these distributions and the
    standard library.
    """
    hidden = hidden_modules(distributions)
    assert "pytest" in hidden
    return subprocess.run(
        [sys.executable, "-c", HIDING + program, ",".join(hidden), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "services"), "COLUMNS": "100"},
    )
