"""Which Job is to train, by the two ConfigMaps of the chart that are mounted into every trainer's
pod.

    rendered  written before the Job: the Job that an upgrade or a rollback asks for
    accepted  written by Helm's last hook, after the API server has taken every object: the Job that
              the release has

An upgrade or a rollback that fails half-way, or `kubectl apply` of new manifests, leaves the former
Job in place, and Helm forgets it. Two trainers of one release then wait for one folder and hold
devices twice. The cluster writes a change of a ConfigMap into running pods, so each trainer can see
that it is neither the one that the release has nor the one that it is about to have. An upgrade
whose Job was refused never changes `accepted`: the trainer before stays.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path

READ_INTERVAL_SECONDS = 5.0
PATIENCE_SECONDS = 180.0
"""The kubelet may show an outdated name for two minutes: its cache and its sync take a minute each.
A new trainer that finds the name of the former one must not leave for it. Helm deletes the former
Job as soon as the new one is accepted, so usually its SIGTERM ends the former trainer."""


@dataclass(eq=False)
class NamedTrainer:
    """Reports the Job that this trainer must leave for: accepted, while ours is neither accepted
    nor rendered.
    """

    _job: str
    _rendered: Path
    _accepted: Path
    _looked_at: float = -math.inf
    _other_job: str = ""
    _other_since: float = 0.0

    def find_other_job(self) -> str:
        """The Job that is to train in our place; "" = none, or not for long enough."""
        now_seconds = time.monotonic()
        if now_seconds - self._looked_at >= READ_INTERVAL_SECONDS:
            self._looked_at = now_seconds
            other_job = self.read_other_job()
            # A name counts only after PATIENCE_SECONDS without a change.
            if other_job != self._other_job:
                self._other_job = other_job
                self._other_since = now_seconds
        return self._other_job if now_seconds - self._other_since >= PATIENCE_SECONDS else ""

    def read_other_job(self) -> str:
        """The Job that we must leave for by what the files say now, however short they have said
        so; else "".
        """
        accepted = _read(self._accepted)
        return "" if self._job in (accepted, _read(self._rendered)) else accepted


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            # Names of Kubernetes are shorter
            return opened.read(1_000).decode(errors="replace").strip()
    except OSError:
        return ""
