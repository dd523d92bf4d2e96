"""The status of a pod, read: why it does not start, and whose doing its end is."""

from typing import Any

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pods.manifest import EPISODE_CONTAINER

FAILED_START_REASONS = (
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
)  # fmt: skip
"""Reasons of a container that will not start. ErrImagePull is tried once more before."""


def is_running(pod: dict[str, Any]) -> bool:
    return "running" in _state(pod) and "deletionTimestamp" not in pod["metadata"]


def has_failed(pod: dict[str, Any]) -> bool:
    """Whether a pod that is not running will not run."""
    state = _state(pod)
    return (
        "terminated" in state
        or state.get("waiting", {}).get("reason") in FAILED_START_REASONS
        or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    )


def failure_reason(pod: dict[str, Any]) -> str:
    """Why a pod is not running, as the kubelet or the scheduler says; may be empty."""
    state = _state(pod)
    status = pod.get("status", {})
    report = state.get("terminated") or state.get("waiting") or status
    # The message of the pull itself says more than that of the pause after it.
    if report.get("reason", "ContainerCreating") not in ("ContainerCreating", "ImagePullBackOff"):
        return f"{report['reason']}: {report.get('message', '')}"
    return "; ".join(
        condition.get("message", "")
        for condition in status.get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    )


def end_error(pod: dict[str, Any] | None, settings: ContainerSettings) -> ContainerError | None:
    """The error that the end of a pod is for its episode; None = it has not ended. pod: None = it
    was deleted.
    """
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ContainerError("its pod was deleted")
    status = pod.get("status", {})
    reason = status.get("reason")
    message = str(status.get("message", ""))
    if reason == "Evicted":
        # A kubelet whose node is short of storage names the containers that used more than they
        # requested.
        if "ephemeral" in message and (
            "node was low" not in message or f"Container {EPISODE_CONTAINER} was using" in message
        ):
            limit = f"{settings.disk_gib * 1024:g} MiB"
            return SpoiledError(f"its files took more than the {limit} that it may write")
        return ContainerError(f"its node evicted it: {message}")
    if reason == "DeadlineExceeded":
        return ContainerError(f"it has ended after {settings.seconds:g} s")
    terminated = _state(pod).get("terminated")
    # With a reason of the whole pod the cluster ended it, such as at a node's shutdown.
    if terminated is not None and not reason:
        cause = terminated.get("reason")
        if cause == "OOMKilled":
            return SpoiledError(f"its programs needed more than {settings.memory_gib:g} GiB")
        # What a kubelet writes of a container that did not start, or that it lost in a reboot.
        if cause in ("StartError", "ContainerStatusUnknown", "Unknown"):
            return ContainerError(f"its node lost it ({cause})")
        # A kill too: memory ran out, which a runtime may fail to report.
        return SpoiledError("its first process was ended by another one")
    if status.get("phase") in ("Succeeded", "Failed", "Unknown"):
        return ContainerError(f"its pod has failed ({reason or ''}: {message})")
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    # The loss of a node makes a pod unready, and not its containers.
    if conditions.get("Ready", "True") != "True" and conditions.get("ContainersReady") != "False":
        return ContainerError("its node does not answer")
    return None


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    """The state of the episode's container."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        if container["name"] == EPISODE_CONTAINER:
            state: dict[str, Any] = container.get("state", {})
            return state
    return {}
