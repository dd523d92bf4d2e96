"""Who may read what a run writes: its user and group. Samples, tasks and logs hold data and what
models wrote.

The umask takes from these modes: with 022 folders are 0750 and files 0640, with 077 they are the
user's alone.
"""

import os

FOLDER_MODE = 0o770


def open_for_group(path: str, flags: int) -> int:
    """The `opener` of such a file; one that exists keeps its mode."""
    # rw-rw----: the owner and its group alone read a run
    return os.open(path, flags, 0o660)
