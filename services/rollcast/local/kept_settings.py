"""The settings of the last start, with which a run goes on if its trainer refuses those of this
start.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rollcast.connections.port_files import port_file
from rollcast.local.earlier_checkpoint import Undo
from rollcast.runfolder.files import RUN_FILE, UP_FILE
from rollcast.runfolder.folder import has_history


@contextmanager
def undone_if_refused(folder: Path) -> Iterator[Undo]:
    """Put run.json and up.json back on an error that comes before the trainer goes on with what the
    run has made.

    Further calls that undo something are added to the list.
    """
    accepted = port_file(folder, "rpc")
    port_before = _written_at(accepted)  # a killed run leaves its own
    files = [
        file
        for file in (folder / RUN_FILE, folder / UP_FILE)
        if file.exists() and has_history(folder)
    ]
    undo: Undo = [partial(_put_back, file, file.read_bytes(), file.stat()) for file in files]
    try:
        yield undo
    except Exception:
        is_accepted = _written_at(accepted) not in (None, port_before)
        for call in [] if is_accepted else reversed(undo):
            call()
        raise


def _written_at(file: Path) -> int | None:
    """Nanoseconds of the last change; None without the file."""
    return file.stat().st_mtime_ns if file.exists() else None


def _put_back(file: Path, content: bytes, status: os.stat_result) -> None:
    """With the time at which it was written: when that start began."""
    temporary = file.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_bytes(content)
    os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    temporary.replace(file)
