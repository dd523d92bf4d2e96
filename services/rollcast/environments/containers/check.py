"""Checks before the start: sentences about podman's containers that this machine cannot start.

podman -> may it keep the limits? -> each image: there, or pulled now -> one container is started
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollcast.config.base import CONTAINER_IMAGE
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.container import COMMAND_SECONDS
from rollcast.environments.containers.podman_arguments import limit_arguments, podman_command
from rollcast.environments.last_lines import LastLines
from rollcast.processes.tree import end_group


def missing_for_podman(settings: ContainerSettings, field: str) -> Iterator[str]:
    """Sentences on podman's installation and on the limits that it cannot keep."""
    if shutil.which("podman") is None:
        yield (
            f"{field}: there is no program podman; install it, or take another profile than a "
            "container"
        )
        return
    try:
        info = json.loads(run_podman([*podman_command(settings), "info", "--format", "json"]))
        sentences = list(missing_limits(settings, info, field))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        yield f"{field}: podman info failed ({last_line(error)}); correct podman's installation"
        return
    yield from sentences


def missing_podman_images(
    settings: ContainerSettings, images: Mapping[str, str], field: str, command: str
) -> Iterator[str]:
    """Sentences; each image is pulled if it is not there, and the first one is started once."""
    has_started = False
    for image, named_by in images.items():
        lacking = list(missing_image(settings, image, named_by))
        if not lacking and not has_started:
            has_started = True
            lacking = list(missing_start(settings, image, field, command))
        yield from lacking


def missing_image(settings: ContainerSettings, image: str, field: str) -> Iterator[str]:
    """A sentence if the image is neither here nor can be pulled."""
    podman = podman_command(settings)
    if re.fullmatch(CONTAINER_IMAGE, image) is None:
        yield f"{field} = {image[:100]}: is no name of an image; correct it"
        return
    try:
        if not has_image(podman, image):
            # Twenty gibibytes at ten mebibytes a second
            run_podman([*podman, "pull", "--quiet", image], 1_800.0)
    except (OSError, subprocess.SubprocessError) as error:
        yield (
            f"{field} = {image}: is not on this machine and cannot be pulled "
            f"({last_line(error)}); correct the name, or build it here"
        )


def missing_start(
    settings: ContainerSettings, image: str, field: str, command: str
) -> Iterator[str]:
    """A sentence if no container of an image starts under these limits."""
    starting = [
        *podman_command(settings), "run", "--rm", "--pull", "never", "--log-driver", "none",
        *limit_arguments(settings), "--entrypoint", json.dumps(["/bin/sh", "-c", command]), image,
    ]  # fmt: skip
    try:
        run_podman(starting)
    except (OSError, subprocess.SubprocessError) as error:
        yield (
            f"{field}: no container of {image} starts ({last_line(error)}); correct podman's "
            "installation, or name another program in runtime"
        )


def missing_limits(settings: ContainerSettings, info: Any, field: str) -> Iterator[str]:
    """Sentences on limits that podman cannot keep here, by what `podman info` says."""
    driver = info["store"]["graphDriverName"]
    if driver != "overlay":
        yield (
            f"{field}.disk_gib: podman's storage driver is {driver}, and only the files of overlay "
            "can be measured; set driver to overlay in its storage.conf"
        )
    host = info["host"]
    if settings.limits == "rlimits" or not host["security"]["rootless"]:
        return
    lacking = sorted({"cpu", "memory", "pids"} - set(host.get("cgroupControllers") or ()))
    # Rootless podman may use control groups of version 2 alone, and those that it was given.
    if host.get("cgroupVersion") != "v2" or lacking:
        yield (
            f"{field}.limits = cgroups: podman without root may not limit "
            f"{', '.join(lacking or ['anything'])} here; set it to rlimits, delegate control "
            "groups to this user, or start the run as root"
        )


def has_image(podman: Sequence[str], image: str) -> bool:
    command = [*podman, "image", "exists", image]
    completed = subprocess.run(  # noqa: S603  # podman
        command, capture_output=True, timeout=COMMAND_SECONDS, check=False
    )
    return completed.returncode == 0


def run_podman(command: Sequence[str], seconds: float = COMMAND_SECONDS) -> bytes:
    """Return the output. At the deadline everything that podman started is killed.

    Raises OSError and SubprocessError.
    """
    with subprocess.Popen(  # noqa: S603  # podman
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_group(process, 0.0)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return output


def last_line(error: Exception) -> str:
    """The last line of an error's message."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took more than {error.timeout:g} s"
    lines = LastLines()
    output = getattr(error, "stderr", None) or str(error).encode()
    lines.add(output)
    lines.end()
    return lines.in_one_line().rpartition(" | ")[2]
