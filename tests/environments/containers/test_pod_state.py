"""Whose doing the end of a pod is, by statuses as kubelets and controllers write them."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import SpoiledError
from rollcast.environments.containers.pods.state import (
    end_error,
    is_hopeless,
    is_running,
    waiting_reason,
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
    "Container episode was using 20Ki, request is 512Mi, has larger consumption."
)
LOST = [{"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("seen", "words", "is_own_doing"),
    [
        (pod("Failed", reason="Evicted", message=LOCAL_LIMIT), "more than the 512 MiB", True),
        (pod("Failed", reason="Evicted", message=CONTAINER_LIMIT), "more than the 512 MiB", True),
        (pod("Failed", reason="Evicted", message=NODE_DISK), "its node evicted it", False),
        (pod("Failed", terminated("OOMKilled", 137)), "needed more than 2 GiB", True),
        (pod("Failed", terminated("Error", 137)), "it has ended", False),
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
    assert not is_running(running | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod("Pending", {"waiting": {"reason": reason, "message": message}})


def test_a_pod_that_waits_says_why() -> None:
    assert not is_hopeless(pod("Pending"))
    assert not is_hopeless(waiting("ContainerCreating"))
    assert not is_hopeless(waiting("ErrImagePull", "not found"))
    assert is_hopeless(waiting("ImagePullBackOff", "Back-off"))
    assert is_hopeless(waiting("CreateContainerError", "no such command"))
    assert waiting_reason(waiting("ErrImagePull", "not found")) == "ErrImagePull: not found"
    assert waiting_reason(waiting("ImagePullBackOff", "Back-off")) == ""
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert waiting_reason(pod("Pending", conditions=[unplaced])) == "0/3 nodes are available"
