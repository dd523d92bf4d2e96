"""Renderings on disk: the processes of a test run, and later runs, render each set
of values once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "rendered-charts"
"""One folder below it: of the present chart, renderer and code that reads its answer."""


@functools.cache
def files_digest(folder: Path) -> str:
    """SHA-256 of names and contents below a folder, which must stay as it is from the first call
    on.
    """
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


class RenderCache:
    """Texts by key. Safe for several processes: a file is written under another name and renamed.

    `version` is of everything that all renderings depend on; the files of any other version are
    deleted.
    """

    def __init__(self, version: str, folder: Path = FOLDER) -> None:
        self._folder = folder / hashlib.sha256(version.encode()).hexdigest()[:32]
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in folder.iterdir():
            if other != self._folder:
                shutil.rmtree(
                    other, ignore_errors=True
                )  # another process may be deleting it as well

    def get(self, key: str, render: Callable[[], str]) -> str:
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text()
        text = render()
        # A run that begins after a change of the chart deletes this folder: then nothing is kept.
        with contextlib.suppress(FileNotFoundError):
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).replace(path)
        return text
