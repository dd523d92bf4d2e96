"""Syntax trees of a checkout's files, each parsed once in a process: all measures and several tests
read them.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file, which nothing changes."""
    return ast.parse(path.read_text())
