"""A Python file outside the packages, such as an example's, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_module(file: Path) -> Any:
    """Import it again, under a name that no package has."""
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
