"""Rewrite the assertions of all test modules once, before several test processes would each do it.

pytest compiles a test module with rewritten assertions and keeps the bytecode next to it. In a
clean checkout every test process would compile every module. This program compiles each once, on
all cores: `python -m testkit.suite.bytecode`.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import _pytest.assertion.rewrite as _rewrite

from testkit.suite.changes import ROOT

rewrite: Any = _rewrite
"""pytest's own functions. They are private: without them each test process compiles for itself, as
pytest does anyway.
"""


def main() -> None:
    if sys.dont_write_bytecode:
        return
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("conftest.py")]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as processes:
        # Files that one process takes at a time
        num_rewritten = sum(processes.map(write_rewritten, files, chunksize=16))
    if num_rewritten:
        print(
            f"assertions of {num_rewritten} test modules rewritten, once for all test processes",
            flush=True,
        )


def write_rewritten(file: Path) -> bool:
    """Write the bytecode that pytest would write; False if it is there and fresh."""
    target = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, target) is not None:
        return False
    status, code = rewrite._rewrite_test(file, None)
    return bool(
        rewrite.try_makedirs(target.parent)
        and rewrite._write_pyc(_Untraced(), code, status, target)
    )


class _Untraced:
    """Takes the place of pytest's state."""

    def trace(self, message: str) -> None: ...


if __name__ == "__main__":
    main()
