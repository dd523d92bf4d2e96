"""What this machine lacks for the containers of a run, in sentences: looked for before the start.

podman -> may it keep the limits? -> each image: there, or pulled now
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.podman import COMMAND_SECONDS, podman_command
from rollcast.environments.last_lines import LastLines

PULL_SECONDS = 1_800.0
"""Longest pull of an image: twenty gibibytes at ten mebibytes a second."""


def missing_for_containers(settings: ContainerSettings, field: str) -> Iterator[str]:
    """Sentences; the environment's image is pulled if it is not there."""
    if shutil.which("podman") is None:
        yield (
            f"{field}: there is no program podman; install it, or take another profile than a "
            "container"
        )
        return
    if settings.runtime is not None and shutil.which(settings.runtime) is None:
        yield f"{field}.runtime = {settings.runtime}: there is no such program; install it"
        return
    try:
        host = _host(settings)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        yield f"{field}: podman info failed ({last_line(error)}); correct podman's installation"
        return
    yield from _missing_limits(settings, host, field)
    if settings.image is not None:
        yield from missing_image(settings, settings.image, f"{field}.image")


def missing_image(settings: ContainerSettings, image: str, field: str) -> Iterator[str]:
    """A sentence if the image is neither here nor can be pulled."""
    podman = podman_command(settings)
    try:
        if has_image(podman, image):
            return
        subprocess.run(  # noqa: S603  # podman
            [*podman, "pull", "--quiet", image],
            capture_output=True,
            timeout=PULL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield (
            f"{field} = {image}: is not on this machine and cannot be pulled "
            f"({last_line(error)}); correct the name, or build it here"
        )


def has_image(podman: list[str], image: str) -> bool:
    command = [*podman, "image", "exists", image]
    ended = subprocess.run(  # noqa: S603  # podman
        command, capture_output=True, timeout=COMMAND_SECONDS, check=False
    )
    return ended.returncode == 0


def _host(settings: ContainerSettings) -> dict[str, Any]:
    command = [*podman_command(settings), "info", "--format", "json"]
    ended = subprocess.run(  # noqa: S603  # podman
        command, capture_output=True, timeout=COMMAND_SECONDS, check=True
    )
    host: dict[str, Any] = json.loads(ended.stdout)["host"]
    return host


def _missing_limits(settings: ContainerSettings, host: dict[str, Any], field: str) -> Iterator[str]:
    """Rootless podman may use control groups of version 2 alone, and those that it was given."""
    if settings.limits == "rlimits" or not host["security"]["rootless"]:
        return
    controllers = set(host.get("cgroupControllers") or ())
    lacking = sorted({"cpu", "memory", "pids"} - controllers)
    if host.get("cgroupVersion") != "v2" or lacking:
        yield (
            f"{field}.limits = cgroups: podman without root may not limit "
            f"{', '.join(lacking or ['anything'])} here; set it to rlimits, delegate control "
            "groups to this user, or start the run as root"
        )


def last_line(error: Exception) -> str:
    lines = LastLines()
    output = getattr(error, "stderr", None) or str(error).encode()
    lines.add(output if isinstance(output, bytes) else output.encode())
    lines.end()
    return lines.in_one_line().rpartition(" | ")[2]
