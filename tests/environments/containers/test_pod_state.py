"""Whose doing the end of a pod is, by statuses as kubelets and controllers write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.errors import SpoiledError
from rollcast.environments.containers.pods.command import (
    LostCommandError,
    RefusedCommandError,
    exit_code,
)
from rollcast.environments.containers.pods.state import (
    end_error,
    failure_reason,
    has_failed,
    is_running,
)

SETTINGS = ContainerSettings(disk_gib=0.5, memory_gib=2, seconds=60)


def pod(phase: str, state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [] if state is None else [{"name": "episode", "state": state}]
    return {"metadata": {}, "status": {"phase": phase, "containerStatuses": statuses, **status}}


def terminated(reason: str, code: int) -> dict[str, Any]:
    return {"terminated": {"reason": reason, "exitCode": code}}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
LOCAL_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 512Mi. "
CONTAINER_LIMIT = 'Container episode exceeded its local ephemeral storage limit "512Mi". '
NODE_DISK = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 10, available: 9. "
    "Container other was using 20Ki, request is 0, has larger consumption of ephemeral-storage. "
)
OWN_NODE_DISK = NODE_DISK.replace("other", "episode")
NODE_INODES = "The node was low on resource: inodes. Threshold quantity: 10, available: 9. "
LOST = [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("seen", "words", "is_own_doing"),
    [
        (pod("Failed", reason="Evicted", message=LOCAL_LIMIT), "more than the 512 MiB", True),
        (pod("Failed", reason="Evicted", message=CONTAINER_LIMIT), "more than the 512 MiB", True),
        (pod("Failed", reason="Evicted", message=NODE_DISK), "its node evicted it", False),
        (pod("Failed", reason="Evicted", message=OWN_NODE_DISK), "more than the 512 MiB", True),
        (pod("Failed", reason="Evicted", message=NODE_INODES), "its node evicted it", False),
        (pod("Failed", terminated("OOMKilled", 137)), "needed more than 2 GiB", True),
        (pod("Failed", terminated("Error", 137)), "ended by another one", True),
        (pod("Failed", terminated("Error", 128)), "ended by another one", True),
        (pod("Failed", terminated("Error", 143), reason="Terminated"), "Terminated", False),
        (pod("Failed", terminated("Error", 137), reason="NodeShutdown"), "NodeShutdown", False),
        (pod("Failed", terminated("Unknown", 255)), "its node lost it (Unknown)", False),
        (pod("Failed", terminated("ContainerStatusUnknown", 137)), "its node lost it", False),
        (pod("Failed", terminated("StartError", 128)), "its node lost it (StartError)", False),
        (pod("Failed", terminated("Error", 1)), "ended by another one", True),
        (pod("Succeeded", terminated("Completed", 0)), "ended by another one", True),
        (pod("Failed", reason="DeadlineExceeded"), "after 60 s", False),
        (pod("Failed", reason="NodeLost", message="Node is gone"), "Node is gone", False),
        (pod("Running", RUNNING, conditions=LOST), "node does not answer", False),
        (None, "deleted", False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "deleted", False),
    ],
)
def test_an_end_is_the_programs_doing_or_the_clusters(
    seen: dict[str, Any] | None, words: str, is_own_doing: bool
) -> None:
    error = end_error(seen, SETTINGS)
    assert error is not None
    assert words in str(error)
    assert isinstance(error, SpoiledError) is is_own_doing


def test_a_pod_that_runs_has_not_ended() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    running = pod("Running", RUNNING, conditions=ready)
    assert end_error(running, SETTINGS) is None
    assert is_running(running)
    sidecar_fails = [*LOST, {"type": "ContainersReady", "status": "False"}]
    assert end_error(pod("Running", RUNNING, conditions=sidecar_fails), SETTINGS) is None
    assert not is_running(running | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod("Pending", {"waiting": {"reason": reason, "message": message}})


def test_a_pod_that_waits_says_why() -> None:
    assert not has_failed(pod("Pending"))
    assert not has_failed(waiting("ContainerCreating"))
    assert not has_failed(waiting("ErrImagePull", "not found"))
    assert has_failed(waiting("ImagePullBackOff", "Back-off"))
    assert has_failed(waiting("CreateContainerError", "no such command"))
    assert failure_reason(waiting("ErrImagePull", "not found")) == "ErrImagePull: not found"
    assert failure_reason(waiting("ImagePullBackOff", "Back-off")) == ""
    refused = pod("Failed", reason="UnexpectedAdmissionError", message="no device")
    assert has_failed(refused)
    assert failure_reason(refused) == "UnexpectedAdmissionError: no device"
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert failure_reason(pod("Pending", conditions=[unplaced])) == "0/3 nodes are available"


EXEC = "failed to exec in container: failed to start exec: OCI runtime exec failed: "
START = EXEC + "exec failed: unable to start container process: "


@pytest.mark.parametrize(
    ("message", "is_refused"),
    [
        (START + 'exec: "/bin/sh": permission denied: unknown', True),
        (START + 'chdir to cwd ("/app") set in config.json failed: not a directory', True),
        (START + "error starting setns process: resource temporarily unavailable", True),
        (
            EXEC + "unable to retrieve OCI runtime error (open log.json: no such file or "
            "directory): fork/exec /usr/bin/runc: no such file or directory: unknown",
            False,
        ),
        ("dial unix /run/containerd/containerd.sock: connect: no such file or directory", False),
    ],
)
def test_only_what_keeps_a_program_from_its_start_in_the_pod_is_a_refusal(
    message: str, is_refused: bool
) -> None:
    status = {"status": "Failure", "reason": "InternalError", "message": message}
    with pytest.raises(LostCommandError) as caught:
        exit_code(json.dumps(status).encode())
    assert isinstance(caught.value, RefusedCommandError) is is_refused
