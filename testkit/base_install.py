"""How large the installation without extras is."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from requirements.closure import closure

ROOT = Path(__file__).parents[1]


def base_bytes() -> int:
    """Bytes of the files of the base's distributions."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    total = sum(
        path.stat().st_size
        for path in (ROOT / "services").rglob("*")
        if path.suffix in (".py", ".js", ".css")
    )
    for name in closure(needed):
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:  # of another release of Python
            continue
        paths = (Path(str(file.locate())) for file in files)
        total += sum(
            path.stat().st_size for path in paths if path.is_file() and path.suffix != ".pyc"
        )
    return total
