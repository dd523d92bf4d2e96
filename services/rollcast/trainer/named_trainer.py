"""Who is to train, as the release says: the chart's ConfigMap, mounted into every trainer's pod.

An upgrade or a rollback that fails half-way, or `kubectl apply` of new manifests, leaves the Job before where it was,
and Helm forgets it. Two trainers of one release then wait for one folder and hold devices twice. The cluster writes a
change of the ConfigMap into running pods, so each of them can see that it is not the one.
"""

from __future__ import annotations

import time
from pathlib import Path

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 180.0
"""The kubelet may show for two minutes a name that is no more: its cache and its round, a minute each. A new trainer
that finds the name of the one before must not leave for it. Helm names the new Job first and deletes this one seconds
later: its SIGTERM is the usual way to go."""
MAX_BYTES = 1_000


class NamedTrainer:
    """Says when the file has named another Job than ours for PATIENCE_SECONDS; without a name in it nobody leaves."""

    def __init__(self, job: str, file: Path) -> None:
        self._job = job
        self._file = file
        self._looked_at = float("-inf")
        self._other = ""
        self._other_since = 0.0

    def other(self) -> str:
        """The Job that is to train in our place; "" = none, or not for long enough."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            found = self._read()
            if found != self._other:
                self._other, self._other_since = found, now
        return self._other if now - self._other_since >= PATIENCE_SECONDS else ""

    def names_another(self) -> bool:
        """Whether it names another Job now, however short."""
        return self._read() != ""

    def _read(self) -> str:
        """A name that is not ours; "" where there is none, or no file."""
        try:
            with self._file.open("rb") as file:
                name = file.read(MAX_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""
        return "" if name == self._job else name
