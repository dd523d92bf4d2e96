"""A disk that fills up while a run goes on: Redis and trainer wait for room, or end, and can hardly
write down why.
"""

import shutil
from pathlib import Path

LOW_BYTES = 64 << 20
"""Free bytes below which the user is warned: logs and Redis' file fill them within minutes."""


class DiskWatch:
    """Says once that the disk of the run's folder is nearly full, and once that it is full; again
    if it was freed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told_below = LOW_BYTES + 1

    def lines(self) -> list[str]:
        """News since the last call."""
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return []
        if free >= 2 * LOW_BYTES:  # not for each file that comes and goes
            self._told_below = LOW_BYTES + 1
        # Free bytes below which nothing of use can be written.
        full_bytes = 64 << 10
        limit = full_bytes if free < full_bytes else LOW_BYTES
        if free >= limit or limit >= self._told_below:
            return []
        self._told_below = limit
        if limit == full_bytes:
            return [
                f"no space is left on the disk of {self._folder}: the run cannot go on until "
                "you free some"
            ]
        return [
            f"{free >> 20} MiB are left on the disk of {self._folder}: free space, or the run "
            "stops when it is full"
        ]
