"""The trainer's process as it is, but for how long it waits for those who read its last metrics."""

from __future__ import annotations

import sys

from rollcast.trainer import service
from rollcast.trainer.__main__ import main

PATIENCE_SECONDS = 6.0

if __name__ == "__main__":
    service.LAST_READING_SECONDS = PATIENCE_SECONDS
    sys.exit(main())
