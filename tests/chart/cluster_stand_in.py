"""A cluster that answers as one with a release at work does, and a clock
that only its steps move.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from testkit.cluster.proof import Proof, prepare
from testkit.cluster.steps import look
from testkit.cluster.tools import Cluster, Refuted

Object = dict[str, Any]


def thing(kind: str, name: str, role: str = "", uid: str = "", **rest: Any) -> Object:
    labels = {"app.kubernetes.io/instance": "proof", "app.kubernetes.io/component": role}
    return {"kind": kind, "metadata": {"name": name, "uid": uid or name, "labels": labels}, **rest}


def pod(role: str, uid: str = "") -> Object:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    container = {"name": role, "image": f"rollcast/{role}:0.2.0"}
    spec = {"nodeName": "node", "containers": [container]}
    return thing("Pod", f"{role}-0", role, uid, status=status, spec=spec)


def job(name: str, code: int | None = None) -> Object:
    """A Job at work, or one that failed because the trainer ended with that code."""
    message = (
        f"Container trainer for pod x/{name}-0 failed with exit code {code} matching FailJob rule "
        "at index 0"
    )
    conditions = [
        {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    ]
    return thing("Job", name, "trainer", status={} if code is None else {"conditions": conditions})


class Clock:
    """Time that passes while a step waits, and what happens then, one after the other."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.happens: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        return self.now_seconds

    def sleep(self, seconds: float) -> None:
        # Between two looks of a step that waits
        self.now_seconds += 200.0
        if self.happens:
            self.happens.pop(0)()


class StandIn(Cluster):
    """Answers as a cluster with one release at work; a test sets the other answers."""

    def __init__(self, namespace: str = "somewhere") -> None:
        super().__init__(namespace)
        roles = ("trainer", "generator", "redis", "forecaster")
        self.there: dict[str, list[Object]] = {
            "pods": [pod(role) for role in roles],
            "jobs": [job("first")],
        }
        self.answers: dict[str, str | Callable[[str], str]] = {"version --template": "v4.2.0"}
        """Pattern of a command -> its output; the last matching pattern counts."""
        self.commands: list[str] = []
        self._steps = itertools.count(1)

    def run(self, command: list[str], seconds: float, stdin_text: str | None = None) -> str:
        text = shlex.join(command[3:])
        self.commands.append(text)
        for pattern, answer in reversed(self.answers.items()):
            if re.search(pattern, text):
                return answer(text) if callable(answer) else answer
        if command[3] == "exec":
            return f"rollcast_trainer_step {next(self._steps)}\n"
        listed = re.fullmatch(r"get (\S+) -l (\S+) -o json", text)
        if not listed:
            return "{}"
        selector_labels = dict(term.split("=") for term in listed[2].split(","))
        items = [
            item
            for kind in listed[1].split(",")
            for item in self.there.get(kind, [])
            if selector_labels.items() <= item["metadata"]["labels"].items()
        ]
        return json.dumps({"items": items})


def make_proof(cluster: StandIn, there: StandIn | None = None) -> Proof:
    proof = prepare("somewhere")
    proof.cluster = cluster
    for release in (proof.release, proof.beside, proof.queued, proof.refused, proof.pair):
        release.cluster = cluster
    proof.elsewhere.cluster = there or StandIn("somewhere-2")
    return proof


def fails(text: str) -> str:
    raise Refuted(f"helm ended with 1: {text}")


def take_step(step: str, cluster: StandIn, there: StandIn | None = None) -> Object:
    return look(make_proof(cluster, there), step)
