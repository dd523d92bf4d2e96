"""Whether a record was made here, by the user who reads it: then the code that it names may run."""

from __future__ import annotations

import os
import socket
import stat
from hashlib import sha256
from pathlib import Path

from rollcast.recorded.step_bundle import RECORD_FILE, StepBundle


def folder_origin(folder: Path) -> str:
    """Digest of machine, user and folder, which a copy of the folder does not have.

    A stranger who makes a record for this user knows neither the machine's id nor the inode.
    """
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:  # in most containers
        machine = ""
    identity = (machine or socket.gethostname(), os.geteuid(), folder.stat().st_ino)
    return sha256(repr(identity).encode()).hexdigest()


def is_own_record(bundle: StepBundle) -> bool:
    """Whether this user recorded the step in this folder, and the file is still only theirs and
    their group's.
    """
    try:
        record = (bundle.path / RECORD_FILE).stat()
        origin = folder_origin(bundle.path.parent)
    except OSError:
        return False
    is_theirs = record.st_uid == os.geteuid() and not record.st_mode & stat.S_IWOTH
    return is_theirs and bundle.origin == origin
