"""Who may read what a run writes: its user and group. Samples, tasks and logs hold data and what models wrote.

The umask takes from these modes: with 022 folders are 0750 and files 0640, with 077 they are the user's alone.
"""

import os

FOLDER_MODE = 0o770
FILE_MODE = 0o660


def open_for_group(path: str, flags: int) -> int:
    """The `opener` of such a file; one that exists keeps its mode."""
    return os.open(path, flags, FILE_MODE)
