"""kubectl and helm as programs, each call with a deadline: the cluster is whatever their kubeconfig
names.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "rollcast"
CALL_SECONDS = 120.0
PAUSE_SECONDS = 5.0
NEW_HELM = 4
"""Helm applies on the server's side from this version on, and keeps the pods of tests until their
logs are read."""


class NotSeen(Exception):  # noqa: N818  (a state of the cluster, not a mistake)
    """This cluster cannot show it; the message names the missing part."""


class Refuted(Exception):  # noqa: N818
    """The cluster was looked at and contradicts the claim."""


class Cluster:
    """One namespace of a cluster.

    `recorded` = commands are written down and none is run: for a check without one.
    """

    def __init__(self, namespace: str, recorded: list[list[str]] | None = None) -> None:
        self.namespace = namespace
        self.recorded = recorded

    def kubectl(
        self, *arguments: str, seconds: float = CALL_SECONDS, stdin_text: str | None = None
    ) -> str:
        """The output of the command. Raises Refuted if it failed."""
        return self.run(["kubectl", "-n", self.namespace, *arguments], seconds, stdin_text)

    def helm(self, *arguments: str, seconds: float = CALL_SECONDS) -> str:
        """The output of `helm`."""
        return self.run(["helm", "-n", self.namespace, *arguments], seconds)

    @cached_property
    def helm_version(self) -> int:
        """Major version of Helm."""
        version_match = re.match(r"v(\d+)", self.helm("version", "--template", "{{.Version}}"))
        return int(version_match[1]) if version_match else NEW_HELM

    @property
    def takes_over(self) -> list[str]:
        """The flag with which Helm takes a field from its other owner, which is necessary after an
        autoscaler has scaled.

        Helm 4 applies on the server's side, which refuses that without the flag; Helm 3 does it
        anyway and has no flag.
        """
        return ["--force-conflicts"] if self.helm_version >= NEW_HELM else []

    def refuses(self, *arguments: str, seconds: float = CALL_SECONDS) -> str:
        """The message with which helm refused. Raises Refuted if it did not refuse."""
        try:
            self.helm(*arguments, seconds=seconds)
        except Refuted as error:
            return str(error)
        self.require(lambda: False, f"helm {shlex.join(arguments[:3])} was not refused")
        return ""

    def read(self, *arguments: str) -> dict[str, Any]:
        """The JSON that kubectl printed; empty if the command is only recorded."""
        text = self.kubectl(*arguments, "-o", "json")
        return {} if self.recorded is not None else dict(json.loads(text))

    def objects(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Objects with these labels."""
        return list(self.read("get", kind, "-l", selector).get("items", []))

    def has(self, kind: str) -> bool:
        """Whether the cluster knows this kind of object. Raises Refuted if it does not answer."""
        try:
            self.kubectl("get", kind, "-o", "name")
        except Refuted as error:
            if "doesn't have a resource type" not in str(error):
                raise
            return False
        return True

    def until(self, condition: str, seconds: float, holds: Callable[[], object]) -> None:
        """Wait until the condition holds; a failing question counts as no.

        Raises Refuted after the deadline.
        """
        if self.recorded is not None:
            return
        deadline = time.monotonic() + seconds
        while True:
            reason = ""
            try:
                if holds():
                    return
            except Refuted as error:
                reason = f" ({error})"
            if time.monotonic() > deadline:
                raise Refuted(f"{condition}: not within {seconds:.0f} s{reason}")
            time.sleep(PAUSE_SECONDS)

    def always(self, seconds: float, holds: Callable[[], object], otherwise: str) -> None:
        """Raises Refuted with that sentence if the condition does not hold at every look within
        these seconds.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.require(holds, otherwise)
            if self.recorded is not None or time.monotonic() >= deadline:
                return
            time.sleep(PAUSE_SECONDS)

    def require(self, holds: Callable[[], object], otherwise: str) -> None:
        """Raises Refuted with that sentence if the condition does not hold."""
        if self.recorded is None and not holds():
            raise Refuted(otherwise)

    @contextmanager
    def forward_port(self, namespace: str, service: str, port: str) -> Iterator[str]:
        """The service as an address of this machine, by `kubectl port-forward`. Raises Refuted if
        that fails. Not by the API server's proxy: that uses the Authorization header itself and
        does not pass it on.
        """
        ports = ["port-forward", f"service/{service}", f":{port}", "--pod-running-timeout=1m"]
        command = ["kubectl", "-n", namespace, *ports]
        if self.recorded is not None:
            self.recorded.append(command)
            yield "http://127.0.0.1"
            return
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                assert process.stdout is not None
                first_line = process.stdout.readline()
                port_match = re.search(r"127\.0\.0\.1:(\d+)", first_line)
                if not port_match:
                    raise Refuted(
                        f"{shlex.join(command)}: {first_line.strip() or 'ended without a word'}"
                    )
                yield f"http://127.0.0.1:{port_match[1]}"
            finally:
                process.kill()

    def run(self, command: list[str], seconds: float, stdin_text: str | None = None) -> str:
        if self.recorded is not None:
            self.recorded.append(command)
            return ""
        try:
            done = subprocess.run(
                command,
                input=stdin_text,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            raise Refuted(f"{shlex.join(command[:6])}: {error}") from error
        if done.returncode != 0:
            last_words = done.stderr.strip()[-400:]
            raise Refuted(f"{shlex.join(command[:6])} ended with {done.returncode}: {last_words}")
        return done.stdout


def has_condition(item: dict[str, Any], name: str) -> bool:
    """Whether a condition of an object is true."""
    return any(
        entry["type"] == name and entry["status"] == "True"
        for entry in item.get("status", {}).get("conditions", [])
    )
