"""Which lines of functions of some modules have run."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from testkit.record import ROOT

PACKAGE = ROOT / "services" / "rollcast"


class LineCoverage:
    """A context in which lines are noted. Those of a module's own level are left out: an import
    runs them."""

    def __init__(self, modules: Collection[str]) -> None:
        self._lines = {str(file): set(_lines(file)) for file in _files(modules)}
        self._reached: defaultdict[str, set[int]] = defaultdict(set)

    def __enter__(self) -> None:
        sys.settrace(self._begin_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def shares(self) -> dict[str, float]:
        """By module: reached lines over all."""
        return {
            ".".join(Path(file).relative_to(PACKAGE).with_suffix("").parts): round(
                len(self._reached[file] & lines) / len(lines), 3
            )
            for file, lines in self._lines.items()
            if lines
        }

    def _begin_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._note if frame.f_code.co_filename in self._lines else None

    def _note(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self._reached[frame.f_code.co_filename].add(frame.f_lineno)
        return self._note


def _files(modules: Collection[str]) -> Iterator[Path]:
    for module in modules:
        path = PACKAGE.joinpath(*module.split("."))
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def _lines(file: Path) -> Iterator[int]:
    waiting = [
        code
        for code in compile(file.read_text(), str(file), "exec").co_consts
        if isinstance(code, CodeType)
    ]
    for code in waiting:  # grows while it is gone through
        inner = [item for item in code.co_consts if isinstance(item, CodeType)]
        waiting += inner
        if code.co_flags & 2:  # of a function: a class's body runs at import
            first = code.co_firstlineno
            yield from (line for _, _, line in code.co_lines() if line and line > first)
