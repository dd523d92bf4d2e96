"""A small run of the rendered pods, and what is asked of them while it goes on."""

from __future__ import annotations

import socket
from typing import Any

import httpx

from tests.chart.local_cluster import LocalPod

STEPS = 4
SMALLER: dict[str, Any] = {
    "config": {
        "budget": {"steps": STEPS},
        "tasks": {
            "dataset": {"max_digits": 2},
            "evaluation": {"num_prompts": 8, "rollouts_per_prompt": 4, "every_steps": 2},
        },
        "recipe": {"prompts_per_step": 4, "optimizer": {"warmup_steps": 2}},
        # A machine that does other things as well: nobody is to be taken for dead.
        "weights": {
            "heartbeat_timeout_seconds": 90,
            "bucket_timeout_seconds": 60,
            "acknowledge_timeout_seconds": 90,
        },
    }
}
INIT_SECONDS = 240.0
PROBE_SECONDS = 1.0
"""Between two looks at whether a pod is ready."""


def finish(pod: LocalPod, container: str, seconds: float) -> str:
    """Run a container to its end; returns what it said."""
    code = pod.start(container).wait(seconds)
    said = pod.log(container).read_text(errors="replace")
    assert code == 0, f"{pod.name}/{container} ended with {code}:\n{said[-3000:]}"
    return said


def listens(pod: LocalPod, port: int) -> bool:
    try:
        socket.create_connection((pod.address, port), timeout=1).close()
    except OSError:
        return False
    return True


def ready(pod: LocalPod, container: str) -> bool:
    """The container's own readiness probe."""
    probe = pod.container(container)["readinessProbe"]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in pod.container(container)["ports"]}
    try:
        return (
            httpx.get(
                f"http://{pod.address}:{ports[probe['port']]}{probe['path']}", timeout=5
            ).status_code
            == 200
        )
    except httpx.HTTPError:
        return False
