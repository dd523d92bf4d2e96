"""The image of a task: ready, or built from its Dockerfile under a name that its content gives."""

import hashlib
import os
import subprocess
from collections.abc import Iterator

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.check import has_image, last_line, run_podman
from rollcast.environments.containers.podman_arguments import podman_command
from rollcast.environments.harbor.task import HarborTask


def task_image(task: HarborTask) -> str:
    """The name of a task's image. Raises OSError if its files cannot be read."""
    if task.file.environment.docker_image is not None:
        return task.file.environment.docker_image
    digest = hashlib.sha256()
    context = task.folder / "environment"
    for path in sorted(context.rglob("*")):
        digest.update(os.fsencode(path.relative_to(context)))
        digest.update(f"\0{path.lstat().st_mode}\0".encode())
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"localhost/rollcast-task:{digest.hexdigest()[:32]}"


def make_image(settings: ContainerSettings, task: HarborTask, field: str) -> Iterator[str]:
    """Build the image if it is not on this machine; a sentence if that fails."""
    context = task.folder / "environment"
    if settings.engine == "kubernetes":
        yield (
            f"{field}: {task.name}: Kubernetes builds no image; push one of its Dockerfile and set "
            "environment.docker_image in task.toml, or take the task out of the folder"
        )
        return
    podman = podman_command(settings)
    try:
        image = task_image(task)
        if has_image(podman, image):
            return
        command = [
            *podman, "build", "--quiet", "--network", settings.network, "--tag", image,
            *("--ulimit", "nofile=1024:1024"), *("--ulimit", "nproc=1024:1024"),
            *("--file", str(context / "Dockerfile")), str(context),
        ]  # fmt: skip
        seconds = task.file.environment.build_timeout_sec
        run_podman(command, seconds)
    except (OSError, subprocess.SubprocessError) as error:
        yield (
            f"{field}: {task.name}: its image cannot be built ({last_line(error)}); correct "
            f"{context / 'Dockerfile'}, or give container.network a network if the build needs one"
        )
