"""Runs pip, and says how far it is: `progress.py VENV LIST -- pip install ...`.

pip says nothing, or several lines a package. Here a line every ten seconds counts the packages of
LIST that are fetched or installed, with their size. pip's own words are shown if it fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

EVERY_SECONDS = 10.0
POLL_SECONDS = 0.2
SHOWN_LINES = 20
"""Of pip's output, after a failure."""
DOWNLOAD = re.compile(rb"^ *Downloading \S+ \(([0-9.]+) (kB|MB|GB)\)", re.MULTILINE)
BYTES = {b"kB": 1e3, b"MB": 1e6, b"GB": 1e9}
NAMED = (b"Collecting ", b"Requirement already satisfied: ")
"""How a line of pip begins that names a package."""


def main(arguments: list[str]) -> int:
    """Return pip's exit code."""
    split = arguments.index("--")
    venv, requirements = map(Path, arguments[:split])
    total = sum(
        1
        for line in requirements.read_text().splitlines()
        if line and not line.startswith(("#", "-"))
    )
    with tempfile.TemporaryFile() as output:
        command = arguments[split + 1 :]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as pip:  # noqa: S603  # install.sh's own
            told_at = time.monotonic()
            while pip.poll() is None:
                time.sleep(POLL_SECONDS)
                if time.monotonic() - told_at >= EVERY_SECONDS:
                    print(f"  {state(venv, total, _read(output))}", flush=True)
                    told_at = time.monotonic()
        if pip.returncode:
            print(
                "\n".join(_read(output).decode(errors="replace").splitlines()[-SHOWN_LINES:]),
                file=sys.stderr,
            )
        else:
            print(f"  {state(venv, total, b'')}", flush=True)
    return pip.returncode


def state(venv: Path, total: int, output: bytes) -> str:
    """One line: what is fetched before pip installs anything, then what is installed."""
    named = sum(output.count(b"\n" + word) + output.startswith(word) for word in NAMED)
    if output and b"\nInstalling collected packages" not in output:
        fetched = sum(float(number) * BYTES[unit] for number, unit in DOWNLOAD.findall(output))
        return f"{min(named, total)} of {total} packages fetched, {fetched / 1e9:.1f} GB"
    size = f"{sum(_sizes(venv)) / 1e9:.1f} GB"
    installed = sum(1 for _ in venv.glob("lib/python*/site-packages/*.dist-info"))
    return f"{min(installed, total)} of {total} packages installed, {size}"


def _sizes(folder: Path) -> Iterator[int]:
    """Bytes of each file on disk; files may go while they are counted."""
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue


def _read(output: IO[bytes]) -> bytes:
    output.seek(0)
    return output.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
