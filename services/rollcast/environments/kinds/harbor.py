"""Task folders in Harbor's format: a program for each episode, with a container of its own."""

import json
import sys
from collections.abc import Iterator
from functools import partial

from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.errors import UserError
from rollcast.environments.containers.abandoned import remove_abandoned_containers
from rollcast.environments.containers.check import missing_for_containers
from rollcast.environments.containers.podman import podman_command
from rollcast.environments.harbor.images import make_image
from rollcast.environments.harbor.play import task_settings
from rollcast.environments.harbor.task import HarborTask, read_task, task_folders
from rollcast.environments.harness.program import absolute
from rollcast.environments.kinds.harness import HarnessPrograms
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_program


def missing(settings: HarborEnvironment, field: str) -> Iterator[str]:
    """Sentences on tasks that cannot be played; images are built and pulled if there is none."""
    if settings.command is not None:
        yield from missing_program(f"{field}.command.0", settings.command[0])
    lacking = list(missing_for_containers(settings.container, f"{field}.container"))
    yield from lacking
    try:
        folders = task_folders(settings.tasks)
    except UserError as error:
        yield f"{field}.tasks = {error}"
        return
    for folder in folders:
        try:
            task = read_task(folder)
        except UserError as error:
            yield str(error)
            continue
        too_much = list(asks_for_more(settings, task, field))
        yield from too_much
        if not lacking and not too_much:
            yield from make_image(settings.container, task, f"{field}.tasks")


def start(settings: HarborEnvironment, surroundings: Surroundings) -> "HarborPrograms":
    return HarborPrograms(settings, surroundings)


class HarborPrograms(HarnessPrograms):
    """A process for each episode, which plays a task."""

    def __init__(self, settings: HarborEnvironment, surroundings: Surroundings) -> None:
        # The keeper of a killed episode kills podman's watcher of its container too.
        clean_up = partial(remove_abandoned_containers, podman_command(settings.container))
        clean_up()
        command = settings.command
        played = settings.model_copy(
            update={
                "tasks": settings.tasks.absolute(),
                "command": None if command is None else tuple(absolute(command)),
            }
        )
        order = {
            "environment": played.model_dump(mode="json"),
            "start_seconds": settings.reset_seconds,
        }
        program = ("-P", "-m", "rollcast.environments.harbor.play", json.dumps(order))
        super().__init__((sys.executable, *program), surroundings, clean_up)


def asks_for_more(settings: HarborEnvironment, task: HarborTask, field: str) -> Iterator[str]:
    """Sentences on what a task asks for and the run file does not allow."""
    asked = task_settings(settings.container, task)
    allowed = settings.container
    for name in ("processors", "memory_gib", "disk_gib"):
        if getattr(asked, name) > getattr(allowed, name):
            yield (
                f"{field}.container.{name} = {getattr(allowed, name):g}: the task {task.name} asks "
                f"for {getattr(asked, name):g}; raise it, or take the task out of the folder"
            )
    # Copies and the fresh container of separate tests
    needed = task.file.verifier.timeout_sec + 60.0
    if settings.call_seconds < needed:
        yield (
            f"{field}.call_seconds = {settings.call_seconds:g}: the tests of {task.name} may take "
            f"{task.file.verifier.timeout_sec:g} s; set it to {needed:g} at least"
        )
