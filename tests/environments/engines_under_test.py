"""The engines of containers: podman itself, and pods of a stand-in cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineUnderTest:
    """One engine, with limits that tests reach in seconds."""

    name: str
    settings: dict[str, Any]
    names: Callable[[], set[str]]
    """Names of its containers that are there."""

    def wait_for_new(self, before: set[str], number: int) -> bool:
        """Whether there are that many more than before, or none if it is 0."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            num_new = len(self.names() - before)
            if num_new >= number if number else num_new == 0:
                return True
            time.sleep(0.1)
        return False
