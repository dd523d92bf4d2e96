"""A tmpfs of a given size: a disk that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ATTEMPTS = 20


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Path]:
    """Mounted at `folder`, which it makes; the test is skipped if the right to mount is missing."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, *, but_bytes: int) -> Path:
    """Leave this many bytes free; returns the file to remove."""
    filler = folder / "filler"
    with filler.open("ab") as file:
        for _ in range(ATTEMPTS):
            disk = os.statvfs(folder)
            filler_bytes = (
                os.fstat(file.fileno()).st_size + disk.f_bavail * disk.f_frsize - but_bytes
            )
            with suppress(OSError):  # others write to the disk as well
                os.posix_fallocate(file.fileno(), 0, filler_bytes)
                return filler
    raise OSError(f"{folder} could not be filled in {ATTEMPTS} attempts")
