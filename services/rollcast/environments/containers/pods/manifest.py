"""The pod of an episode."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.abandoned import process_identity
from rollcast.environments.containers.container import CAPABILITIES

EPISODE_CONTAINER = "episode"
"""Name of the pod's own container; a cluster may add others."""
OWNER_LABEL = "rollcast.io/owner"
"""Label whose value is the uid of the generator's pod, or its machine."""
PROCESS_LABEL = "rollcast.io/process"
"""Label whose value is number and start of the process that asked for the pod."""
FIRST_PROCESS = "while :; do (while :; do :; done) & kill -STOP $!; wait $!; done"
"""Collects orphans. It waits for a child that never goes on; another one follows when a command of
the pod has ended everything. It starts no program: an agent may have replaced every one of them."""


def owner() -> str:
    # Two machines may have one name.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return label_value(os.environ.get("POD_UID") or f"{boot}.{socket.gethostname()}")


def label_value(text: str) -> str:
    """The text, as far as a label may hold it."""
    # Most characters of a label's value
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("_.-")


def pod_manifest(
    settings: ContainerSettings,
    environment: str,
    name: str,
    image: str,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """variables: of every process in it."""
    limits = {
        "cpu": f"{round(settings.processors * 1000)}m",
        "memory": str(int(settings.memory_gib * (1 << 30))),
        "ephemeral-storage": str(int(settings.disk_gib * (1 << 30))),
    }
    container = {
        "name": EPISODE_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", FIRST_PROCESS],
        # A cluster replaces $(NAME) by a variable.
        "env": [
            {"name": variable, "value": value.replace("$", "$$")}
            for variable, value in variables.items()
        ],
        "resources": {"requests": limits, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {
            "app.kubernetes.io/name": "rollcast-episode",
            "rollcast.io/run": label_value(os.environ.get("RUN_NAME", "")),
            "rollcast.io/environment": label_value(environment),
            "rollcast.io/network": settings.network,
            OWNER_LABEL: owner(),
            PROCESS_LABEL: process_identity().replace(":", "-"),
        },
        # A cluster's autoscaler would move it to another node, and so end the episode.
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    }
    # The cluster removes it with the generator's pod. Owners must have the same namespace.
    if settings.namespace is None and "POD_UID" in os.environ:
        generator = {"name": os.environ["POD_NAME"], "uid": os.environ["POD_UID"]}
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", **generator}]
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(settings.seconds),
        # Its first process does not listen to SIGTERM.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if settings.runtime is not None:
        spec["runtimeClassName"] = settings.runtime
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
