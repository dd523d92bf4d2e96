"""Settings of the container in which an episode's programs run."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import CONTAINER_IMAGE, CONTAINER_NAME, RUN_NAME, Settings

Gibibytes = Annotated[float, Field(gt=0, le=4_096)]


class ContainerSettings(Settings):
    """A fresh container for each episode."""

    engine: Literal["podman", "kubernetes"] = "podman"
    """Starts the containers. podman = on the generator's machine. kubernetes = each is a pod of the
    generator's cluster, which may be on any node."""
    image: Annotated[str, Field(pattern=CONTAINER_IMAGE)] | None = None
    """Image of every episode. It is pulled before the start, and needs `sh`. None = each row names
    its own in the field `image`."""
    runtime: Annotated[str, Field(pattern=CONTAINER_NAME)] | None = None
    """Program that podman starts containers with, such as `runsc` of gVisor; on Kubernetes the name
    of a RuntimeClass. None = podman's or the cluster's own."""
    namespace: Annotated[str, Field(pattern=RUN_NAME)] | None = None
    """Namespace of the pods. None = the generator's own. In another one no pod ends by itself when
    the generator's pod is deleted: `seconds` bounds its life."""
    network: Annotated[str, Field(pattern=CONTAINER_NAME)] = "none"
    """Network of the container, as podman names it. none = it reaches nothing: what the model
    writes runs there. On Kubernetes the value of the pods' label `rollcast.io/network`: the chart
    denies everything to none, and another one reaches what your NetworkPolicies allow."""
    processors: Annotated[float, Field(gt=0, le=1_024)] = 1.0
    """Share of the machine's processors. 1.0 = one. Not kept with rlimits."""
    memory_gib: Gibibytes = 2.0
    """Memory, without swap. A program that needs more is ended."""
    disk_gib: Gibibytes = 4.0
    """Most that an episode may write. More ends the container. Looked at every five seconds, on
    Kubernetes when the kubelet looks; no file may be larger at any time."""
    processes: Annotated[int, Field(ge=8, le=100_000)] = 256
    """Processes and threads at a time; with rlimits of all containers of one user together. A pod
    has no such limit: on Kubernetes the kubelet's `podPidsLimit` bounds them, and another value
    than the default is refused here."""
    seconds: Annotated[float, Field(ge=1, le=604_800)] = 7_200.0
    """Longest life of a container. Two hours: longer than an episode, so that none is left if
    everything else fails."""
    limits: Literal["cgroups", "rlimits"] = "cgroups"
    """How the kernel keeps the limits. rlimits = each process for itself, where rootless podman may
    not use control groups: an episode of several processes may take several times the memory.
    podman's alone."""
    warm: Annotated[int, Field(ge=0, le=256)] = 0
    """Containers of `image` that are started ahead, so that an episode need not wait for one. 0 =
    none is: podman starts one in about a second, a cluster a pod in a few."""
