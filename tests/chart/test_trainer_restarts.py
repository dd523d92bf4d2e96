"""Ranks that start again inside their pod: asked for where a Job replaces pods, and known to the
liveness probe.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollcast.trainer.launch import RESTART_MARK
from tests.chart.rendering import CPU, Object, PodOf, merged, pods, render

STARTUP_SECONDS = 600


def trainer(controller: str) -> PodOf:
    values = {"trainer": {"controller": controller, "startupSeconds": STARTUP_SECONDS}}
    (pod,) = [pod for pod in pods(render(merged(CPU, values))) if pod.role == "trainer"]
    return pod


def main_container(pod: PodOf) -> Object:
    (container,) = [container for container in pod.containers if container["name"] == "trainer"]
    return container


def mark(pod: PodOf) -> str | None:
    container = main_container(pod)
    found: dict[str, str] = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return found.get(RESTART_MARK)


def test_a_jobset_restarts_pods_itself() -> None:
    assert mark(trainer("jobset")) is None
    assert mark(trainer("job")) is not None


@pytest.mark.parametrize(
    ("age_seconds", "index", "passes"),
    [(None, "0", False), (5, "0", True), (STARTUP_SECONDS + 60, "0", False), (None, "1", True)],
)
def test_the_probe_waits_for_ranks_that_start_again(
    tmp_path: Path, age_seconds: int | None, index: str, passes: bool
) -> None:
    """No process serves the port: only the file's age can make the probe pass at the first pod."""
    pod = trainer("job")
    file = tmp_path / "restarted"
    if age_seconds is not None:
        file.touch()
        os.utime(file, (time.time() - age_seconds,) * 2)
    container = main_container(pod)
    path = mark(pod)
    assert path is not None
    *shell, program = container["livenessProbe"]["exec"]["command"]
    assert path in program
    program = (
        program.replace(path, str(file))
        .replace("8080", "1")
        .replace("exec python", f"exec {sys.executable}")
    )
    done = subprocess.run(
        [*shell, program],
        env={"JOB_COMPLETION_INDEX": index},
        timeout=60,
        check=False,
        stderr=subprocess.DEVNULL,
    )
    assert (done.returncode == 0) is passes
