"""Task folders in Harbor's format: a program for each episode, with a container of its own."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.config.errors import UserError
from rollcast.environments.containers.engines import find_engine, missing_for_containers
from rollcast.environments.harbor.grading import PROBE, grading_seconds
from rollcast.environments.harbor.images import make_image, task_image
from rollcast.environments.harbor.play import VARIABLES, task_folder, task_settings
from rollcast.environments.harbor.task import (
    HarborTask,
    machine_variables,
    read_task,
    task_folders,
)
from rollcast.environments.harness.program import SECRET_PREFIXES, absolute
from rollcast.environments.kinds.harness import HarnessPrograms
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_program


def missing(settings: HarborEnvironment, field: str) -> Iterator[str]:
    """Sentences on tasks that cannot be played; missing images are built and pulled."""
    if settings.command is not None:
        yield from missing_program(f"{field}.command.0", settings.command[0])
    lacking = list(missing_for_containers(settings.container, settings.name, f"{field}.container"))
    yield from lacking
    try:
        folders = task_folders(settings.tasks)
    except UserError as error:
        yield f"{field}.tasks = {error}"
        return
    images: dict[str, str] = {}
    for folder in folders:
        try:
            task = read_task(folder)
        except UserError as error:
            yield str(error)
            continue
        sentences = [*asks_for_more(settings, task, field), *unset_variables(task)]
        is_ready = task.file.environment.docker_image is not None
        if not lacking and not sentences and not is_ready:
            sentences = list(make_image(settings.container, task, f"{field}.tasks"))
        if not lacking and not sentences:
            images.setdefault(task_image(task), f"{field}.tasks: {task.name}: docker_image")
        yield from sentences
    if not lacking:
        engine = find_engine(settings.container, settings.name)
        command = PROBE if settings.container.engine == "kubernetes" else ":"
        yield from engine.missing_images(images, f"{field}.container", command)


def missing_in_rows(
    settings: HarborEnvironment, field: str, rows: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """Sentences on rows that name no task."""
    for number, row in enumerate(rows, start=1):
        try:
            folder = task_folder(settings.tasks, row)
        except UserError as error:
            yield f"{field}: row {number} of its data set: {error}"
            return
        if not folder.is_dir():
            yield (
                f"{field}: row {number} of its data set: task = {row['task']} is no folder of "
                f"{settings.tasks}; write the data set by python -m rollcast.environments.harbor"
            )
            return


def start(settings: HarborEnvironment, surroundings: Surroundings) -> "HarborPrograms":
    return HarborPrograms(settings, surroundings)


class HarborPrograms(HarnessPrograms):
    """A process for each episode, which plays a task."""

    def __init__(self, settings: HarborEnvironment, surroundings: Surroundings) -> None:
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
        # The keeper of a killed episode kills podman's watcher of its container too.
        clean_up = find_engine(settings.container, settings.name).remove_abandoned
        self._cleaning = asyncio.get_running_loop().run_in_executor(None, clean_up)
        variables = {**surroundings.variables, VARIABLES: json.dumps(_machine_values(settings))}
        surroundings = replace(surroundings, variables=variables)
        super().__init__((sys.executable, *program), surroundings, clean_up)


def asks_for_more(settings: HarborEnvironment, task: HarborTask, field: str) -> Iterator[str]:
    """Sentences on what a task asks for and the run file does not allow."""
    own_settings = task_settings(settings.container, task)
    allowed = settings.container
    for name in ("processors", "memory_gib", "disk_gib"):
        if getattr(own_settings, name) > getattr(allowed, name):
            yield (
                f"{field}.container.{name} = {getattr(allowed, name):g}: the task {task.name} asks "
                f"for {getattr(own_settings, name):g}; raise it, or take the task out of the folder"
            )
    if settings.container.engine == "kubernetes":
        for name, user in (("agent", task.file.agent.user), ("verifier", task.file.verifier.user)):
            if user not in (None, 0, "0", "root"):
                yield (
                    f"{task.folder / 'task.toml'}: {name}.user = {user}: every command of a pod is "
                    "that of the image's user; take the task out of the folder"
                )
    needed = grading_seconds(task, settings.reset_seconds)
    if settings.call_seconds < needed:
        yield (
            f"{field}.call_seconds = {settings.call_seconds:g}: the tests of {task.name}, with all "
            f"that is done before them, may take {needed:g} s; set it to that at least"
        )


def unset_variables(task: HarborTask) -> Iterator[str]:
    for name, is_needed in machine_variables(task).items():
        if name.upper().startswith(SECRET_PREFIXES):
            yield (
                f"{task.folder / 'task.toml'}: env names the variable {name}, which no task gets; "
                "take it out"
            )
        elif is_needed and name not in os.environ:
            yield (
                f"{task.folder / 'task.toml'}: env needs the variable {name} of this machine; "
                "export it where the run is started"
            )


def _machine_values(settings: HarborEnvironment) -> dict[str, str]:
    """The variables of this machine that its tasks name. Raises UserError."""
    names: set[str] = set()
    for folder in task_folders(settings.tasks):
        with contextlib.suppress(UserError):  # the check before the start has said so
            names.update(machine_variables(read_task(folder)))
    return {
        name: os.environ[name]
        for name in names
        if name in os.environ and not name.upper().startswith(SECRET_PREFIXES)
    }
