"""The settings of the last start, with which a run goes on if its trainer refuses those of this start."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.connections.port_files import port_file
from rollcast.runfolder.files import RUN_FILE, UP_FILE
from rollcast.runfolder.folder import has_history


@contextmanager
def kept_if_refused(folder: Path) -> Iterator[None]:
    """Put run.json and up.json of a run that has made something back on an error before its trainer goes on with it."""
    accepted = port_file(folder, "rpc")
    files = [file for file in (folder / RUN_FILE, folder / UP_FILE) if file.exists() and has_history(folder)]
    before = [(file, file.read_bytes(), file.stat()) for file in files]
    try:
        yield
    except Exception:
        for file, content, status in [] if accepted.exists() else before:
            temporary = file.with_suffix(".tmp")
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))  # when that start began
            temporary.replace(file)
        raise
