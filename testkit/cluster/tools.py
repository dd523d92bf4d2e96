"""kubectl and helm as programs, each call with a deadline: the cluster is whatever their kubeconfig names."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "rollcast"
CALL_SECONDS = 120.0
PAUSE_SECONDS = 5.0


class NotSeen(Exception):  # noqa: N818  (a state of the cluster, not a mistake)
    """This cluster cannot show it; the message says what it lacks."""


class Refuted(Exception):  # noqa: N818
    """It was looked at and is not so."""


class Cluster:
    """One namespace of a cluster. `recorded` = commands are written down and none is run: for a check without one."""

    def __init__(self, namespace: str, recorded: list[list[str]] | None = None) -> None:
        self.namespace = namespace
        self.recorded = recorded

    def kubectl(self, *arguments: str, seconds: float = CALL_SECONDS, given: str | None = None) -> str:
        """What it printed. Raises Refuted where it failed."""
        return self.run(["kubectl", "-n", self.namespace, *arguments], seconds, given)

    def helm(self, *arguments: str, seconds: float = CALL_SECONDS) -> str:
        """As `kubectl`."""
        return self.run(["helm", "-n", self.namespace, *arguments], seconds)

    def refuses(self, *arguments: str, seconds: float = CALL_SECONDS) -> str:
        """What helm said when it refused; Raises Refuted where it did not."""
        if self.recorded is not None:
            self.helm(*arguments)
            return ""
        try:
            self.helm(*arguments, seconds=seconds)
        except Refuted as error:
            return str(error)
        raise Refuted(f"helm {shlex.join(arguments)} was not refused")

    def objects(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Objects with these labels."""
        text = self.kubectl("get", kind, "-l", selector, "-o", "json")
        return [] if self.recorded is not None else list(json.loads(text)["items"])

    def has(self, kind: str) -> bool:
        """Whether the cluster knows this kind of object."""
        try:
            self.kubectl("get", kind, "-o", "name")
        except Refuted:
            return False
        return True

    def until(self, what: str, seconds: float, holds: Callable[[], object]) -> None:
        """Wait for it. Raises Refuted after so long."""
        deadline = time.monotonic() + seconds
        while self.recorded is None and not holds():
            if time.monotonic() > deadline:
                raise Refuted(f"{what}: not within {seconds:.0f} s")
            time.sleep(PAUSE_SECONDS)

    def run(self, command: list[str], seconds: float, given: str | None = None) -> str:
        if self.recorded is not None:
            self.recorded.append(command)
            return ""
        try:
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds, check=False)
        except (subprocess.TimeoutExpired, OSError) as error:
            raise Refuted(f"{shlex.join(command[:6])}: {error}") from error
        if done.returncode != 0:
            raise Refuted(f"{shlex.join(command[:6])} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout
