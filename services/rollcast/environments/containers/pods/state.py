"""What the status of a pod says: why it does not start, and whose doing its end is."""

from typing import Any

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import ContainerError, SpoiledError

HOPELESS = (
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
)  # fmt: skip
"""Reasons of a container that will not start. ErrImagePull is tried once more before."""


def is_running(pod: dict[str, Any]) -> bool:
    return "running" in _state(pod) and "deletionTimestamp" not in pod["metadata"]


def is_hopeless(pod: dict[str, Any]) -> bool:
    return _state(pod).get("waiting", {}).get("reason") in HOPELESS


def waiting_reason(pod: dict[str, Any]) -> str:
    """What the kubelet or the scheduler says of a pod that has not started; may be empty."""
    waiting = _state(pod).get("waiting", {})
    # The message of the pull itself says more than that of the pause after it.
    if waiting and waiting.get("reason") not in ("ContainerCreating", "ImagePullBackOff"):
        return f"{waiting.get('reason')}: {waiting.get('message', '')}"
    return "; ".join(
        condition.get("message", "")
        for condition in pod.get("status", {}).get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    )


def end_error(pod: dict[str, Any] | None, settings: ContainerSettings) -> ContainerError | None:
    """What the end of a pod is for its episode; None = it has not ended. pod: None = it is not
    there.
    """
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return ContainerError("its pod was deleted")
    status = pod.get("status", {})
    message = str(status.get("message", ""))
    if status.get("reason") == "Evicted":
        is_own_doing = "ephemeral" in message and "node was low" not in message
        if is_own_doing:
            limit = f"{settings.disk_gib * 1024:g} MiB"
            return SpoiledError(f"its files took more than the {limit} that it may write")
        return ContainerError(f"its node evicted it: {message}")
    if status.get("reason") == "DeadlineExceeded":
        return ContainerError(f"it has ended after {settings.seconds:g} s")
    terminated = _state(pod).get("terminated")
    if terminated is not None:
        if terminated.get("reason") == "OOMKilled":
            return SpoiledError(f"its programs needed more than {settings.memory_gib:g} GiB")
        # 137: the first process was killed from outside: no program in the pod can kill it.
        if terminated.get("exitCode") == 137:
            return ContainerError("it has ended")
        return SpoiledError("its first process was ended by another one")
    if status.get("phase") in ("Succeeded", "Failed", "Unknown"):
        return ContainerError(f"its pod has failed ({status.get('reason', '')}: {message})")
    is_unready = any(
        condition["type"] == "Ready" and condition["status"] != "True"
        for condition in status.get("conditions", [])
    )
    # It has no probe: only a lost node makes a running container unready.
    return ContainerError("its node does not answer") if is_unready else None


def _state(pod: dict[str, Any]) -> dict[str, Any]:
    """The state of the pod's container."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    state: dict[str, Any] = statuses[0].get("state", {})
    return state
