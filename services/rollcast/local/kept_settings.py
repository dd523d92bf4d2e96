"""The settings of the last start, with which a run goes on if its trainer refuses those of this start."""

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
    """Put run.json and up.json back on an error that comes before the trainer goes on with what the run has made.

    Further calls that undo something are added to the list.
    """
    accepted = port_file(folder, "rpc")
    files = [file for file in (folder / RUN_FILE, folder / UP_FILE) if file.exists() and has_history(folder)]
    undo: Undo = [partial(_put_back, file, file.read_bytes(), file.stat()) for file in files]
    try:
        yield undo
    except Exception:
        for call in [] if accepted.exists() else reversed(undo):
            call()
        raise


def _put_back(file: Path, content: bytes, status: os.stat_result) -> None:
    """With the time at which it was written: when that start began."""
    temporary = file.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_bytes(content)
    os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    temporary.replace(file)
