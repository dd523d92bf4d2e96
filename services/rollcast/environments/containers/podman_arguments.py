"""The settings of a container as arguments of podman."""

import resource
from pathlib import Path

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import CAPABILITIES


def podman_command(settings: ContainerSettings) -> list[str]:
    """podman, with the run file's runtime."""
    return ["podman", *(("--runtime", settings.runtime) if settings.runtime else ())]


def limit_arguments(settings: ContainerSettings) -> list[str]:
    """The network, rights and limits of one container, as arguments of `podman run`."""
    memory = int(settings.memory_gib * (1 << 30))
    disk = int(settings.disk_gib * (1 << 30))
    is_grouped = settings.limits == "cgroups"
    num_processes = settings.processes
    if is_grouped:
        # The kernel counts this one over all containers of a user: control groups count for each.
        # podman lowers its own to the machine's largest process number, and can give no more.
        num_processes = int(Path("/proc/sys/kernel/pid_max").read_text())
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        if hard != resource.RLIM_INFINITY:
            num_processes = min(num_processes, hard)
    # podman's own defaults of files and processes are more than a user without privileges may have.
    limits = {"nofile": 1024, "nproc": num_processes, "core": 0, "fsize": disk}
    if not is_grouped:
        limits["data"] = memory
    arguments = [
        *("--network", settings.network, "--security-opt", "no-new-privileges"),
        *("--cap-drop", "all", *(f"--cap-add={name}" for name in CAPABILITIES)),
        # Neither proxies' passwords nor files outside of the container's own layer
        *("--http-proxy=false", "--no-hosts", "--image-volume", "ignore", "--no-healthcheck"),
        *(f"--ulimit={name}={value}:{value}" for name, value in limits.items()),
    ]
    if is_grouped:
        arguments += [
            *("--memory", str(memory), "--memory-swap", str(memory)),
            *("--cpus", f"{settings.processors:g}", "--pids-limit", str(settings.processes)),
        ]
    return arguments
